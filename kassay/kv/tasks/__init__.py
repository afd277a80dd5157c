"""Seeded tasks on which a cache recipe is judged: text, retrieval from a filled context, arithmetic word problems."""
