"""Sources and stacks: what was asked, what was frozen, what was built, and what was really loaded."""
