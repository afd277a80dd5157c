"""The form of a study file: its sections, what each of their keys means, in which unit and within which bounds.

Every key of a section must be there; `null` says that it does not apply. A section that a study does not have is left
out, unless its kind needs it (kassay.study.vocabulary). What no source prints is `???`, and `unprinted` says why.
Sizes are whole numbers of tokens, items or blocks; GiB are 2^30 bytes. What the sections mean together is checked by
kassay.study.rules; this module holds no rule and no default.
"""

from dataclasses import dataclass

from kassay.study import vocabulary
from kassay.study.deciding import ENDPOINTS, GATES, Endpoint, Gate
from kassay.study.drafts import Speculation
from kassay.study.fused import Fused
from kassay.study.reading import said
from kassay.study.vocabulary import FORMATS, LOADS, OF_MODEL, SCALES, TESTS, VERDICTS


@dataclass(frozen=True, kw_only=True)
class Model:
    """One checkpoint."""

    checkpoint: str = said("Repository of the checkpoint, or its folder in this project.")
    revision: str | None = said("Commit of the repository; null where a digest in the tree stands for it.")
    weights: str = said("Format of the weights.", among=FORMATS)
    compute: str = said("Format of weights and activations in matrix products.", among=FORMATS)


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One recipe as it takes part."""

    keys: str = said("Stored format of keys; `compute` is that of the model.", among=(OF_MODEL, *FORMATS))
    values: str = said("Stored format of values, likewise.", among=(OF_MODEL, *FORMATS))
    scales: str = said("What one scale is for.", among=SCALES)
    backend: str = said("What attends: reference, flashinfer, fa3, or a route of them.")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A planned pair of arms; a certificate or a timing contrast answers it."""

    candidate: str = said("Arm under test.")
    control: str = said("Arm that it is compared with.")


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Data that fixed scales come from, disjoint from all other splits."""

    documents: int = said("Documents.", least=1)
    contexts_tokens: list[int] = said("Prefix lengths (tokens).", least=1)
    decode_tokens: int = said("Decode steps that take part (tokens).", least=0)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One load that is timed or served."""

    model: str | None = said("Model of the load; null where any takes its place.")
    input_tokens: int = said("Prompt of each request (tokens).", least=1)
    output_tokens: int | None = said("Output of each request (tokens); null where it ends by itself.", least=1)
    requests: int | None = said("Requests at once: the batch, or the number in flight.", least=1)
    load: str = said("How requests arrive.", among=LOADS)
    rate_per_s: float | None = said("Offered requests per second of an open loop.", above=0)
    ignore_eos: bool = said("Whether the output length is forced.")
    pool_gib: float | None = said("Bytes that every arm's cache may take (GiB).", above=0)
    cpu_threads: int | None = said("Threads of the host.", least=1)


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """One certificate for each model, comparison and objective: all gates of the objective at `alpha`."""

    comparisons: list[str] = said("Comparisons that are certified.")
    objectives: dict[str, list[str]] = said("Objective -> its gates, all of which must hold.")
    route: str | None = said("Objective that later stages ask for, fixed beforehand.")
    family_alpha: float | None = said("Level that is shared within one objective; null: none.", above=0, below=1)
    slots: int = said("Certificates that it is shared among, none of which is ever dropped; 1: not shared.", least=1)


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A family of direct comparisons on one endpoint; a difference that is not significant is no equivalence."""

    endpoint: str = said("Endpoint that is compared.")
    comparisons: list[str] = said("Comparisons, each on every model.")
    test: str = said("The test.", among=TESTS)
    sidedness: str = said("Sides of the test.", among=("one-sided", "two-sided"))
    p_formula: str | None = said("p of a resampling test.", among=("(k+1)/(B+1)", "k/B"))
    family_size: int = said("Comparisons that Holm counts.", least=1)
    alpha: float = said("Level of the family.", above=0, below=1)


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What invalidates a block, whatever it shows; null: no rule. Cells without their evidence never count."""

    cached_tokens: int | None = said("Most prompt tokens that a repetition may take from a cache.", least=0)
    power_capped_percent: float | None = said(
        "Largest share of a cell's time that the power cap may hold a GPU's clocks down (per cent).", least=0
    )
    slowdown_percent: float | None = said(
        "The same by heat, the board's limit or reliability (per cent); no power brake, and cores never for heat.",
        least=0,
    )
    foreign_gpu_processes: int | None = said("Most processes of others on a cell's GPU.", least=0)
    foreign_cpu_percent: float | None = said(
        "Largest use of the processor by others during a cell (per cent of one core).", least=0
    )
    drift_percent: float | None = said("Largest spread of the clocks over the cells of a block (per cent).", least=0)
    valid_blocks: int = said("Blocks that must count, else every comparison is invalidated.", least=1)


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Blocks with one fresh process per arm; pilots never count, and no block is added after a result."""

    workloads: list[str] = said("Loads that are timed.")
    arms: list[str] = said("Arms of a block.")
    pilot_blocks: int = said("Pilot blocks, excluded.", least=0)
    blocks: int = said("Blocks.", least=1)
    orders: str | list[list[str]] = said("Order of the arms in each block, or `williams`: rows of that design in turn.")
    family: list[str] = said("Comparisons that Holm counts; one that is not run keeps p = 1. Empty: descriptive.")
    family_size: int = said("Their number.", least=0)
    alpha: float | None = said("Level of the one-sided exact sign test after Holm.", above=0, below=1)
    screen_ratio: float | None = said("Least median of within-block ratios that counts as a gain.", above=0)
    interval_alpha: float | None = said("1 - coverage of the descriptive interval of the median.", above=0, below=1)
    interval_draws: int | None = said("Resamples of that interval; null: exact enumeration.", least=1)
    warmups: int = said("Warm-up requests in each process, recorded and excluded.", least=0)
    repetitions: int = said("Measured repetitions in each process.", least=1)
    conditions: Conditions | None = said("What invalidates a block; left out: lacking evidence alone.", optional=True)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Throughput over batch at fixed contexts, fitted by S(B) = S_max B^g / (B_half^g + B^g)."""

    arms: list[str] = said("Arms that are swept.")
    contexts_tokens: list[int] = said("Contexts (tokens).", least=1)
    largest_batch: int = said("Largest batch; batches double up to it.", least=1)
    output_tokens: int = said("Decoded tokens of each repetition.", least=1)
    repetitions: int = said("Measured repetitions at each batch.", least=1)
    alpha: float = said("1 - coverage of the fitted ceiling.", above=0, below=1)


@dataclass(frozen=True, kw_only=True)
class Guard:
    """A descriptive look at another load, which decides nothing."""

    workload: str = said("Load.")
    comparison: str = said("Comparison.")
    blocks: int = said("Blocks.", least=1)
    at_least: float = said("Median ratio that is looked for.", above=0)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """How device memory is sampled, and what it may reach."""

    driver_period_ms: int = said("Time between starts of driver queries (ms).", least=1)
    longest_gap_ms: int | None = said("Longest gap between queries that is still evidence (ms).", least=1)
    device_ceiling_gib: float | None = said("Largest use of the whole device (GiB).", above=0)
    reserved_ceiling_gib: float | None = said("Largest reservation of the allocator (GiB).", above=0)
    budget_gib: float | None = said("Persistent bytes that K, V and scales share (GiB).", above=0)
    equal_slots_blocks: int | None = said("Blocks of the audit at equal slots.", least=1)
    exempt: list[str] = said("Stages that the ceilings do not bind; they are sampled all the same.")


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How the worker is set up."""

    sequences: int = said("Largest number of sequences.", least=1)
    batched_tokens: int | None = said("Largest number of tokens of a step.", least=1)
    length_tokens: int | None = said("Longest sequence (tokens).", least=1)
    page_tokens: int | None = said("Tokens of a page.", least=1)
    graph_batches: list[int] = said("Batches of the captured decode graphs; empty: eager.", least=1)
    switched_off: list[str] = said("Features that are switched off.")
    cpus: dict[str, int] = said("Disjoint cores of each process.", least=1)
    open_files: int | None = said("Least limit of open files.", least=1)


@dataclass(frozen=True, kw_only=True)
class Stop:
    """A rule that keeps later stages from running."""

    after: str = said("Stage that is asked.")
    when: list[str] = said("Its verdicts that stop.", among=VERDICTS)
    gates_off: list[str] = said("Later stages that then do not run.")
    verdict: str = said("What they say.", among=VERDICTS)


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is frozen before the first result."""

    name: str = said("Name of the study, that of its file.")
    kind: str = said("What decides.", among=vocabulary.KINDS)
    question: str = said("What it asks, in one sentence.")
    source: str = said("Who designed it.")
    carried_out_by: str | None = said("Workflow that is to carry it out; null: none, it is kept as a record.")
    identities: dict[str, str] = said("Commits, versions and digests that it names.")
    models: dict[str, Model] | None = said("Checkpoints.", optional=True)
    arms: dict[str, Arm] = said("Arms, the control first.")
    comparisons: dict[str, Comparison] | None = said("Planned pairs of arms.", optional=True)
    split: str | None = said("Split of the generated data.", among=("development", "confirmation"), optional=True)
    seed: int | None = said("Seed of data and resampling.", least=0, optional=True)
    batch: int | None = said("Items that are answered together.", least=1, optional=True)
    answer_cap_tokens: int | None = said(
        "Longest answer (tokens); a right one at the cap counts.", least=1, optional=True
    )
    alpha: float | None = said("One-sided level of every bound.", above=0, below=1, optional=True)
    arm_order: list[str] | None = said("Order in which the arms answer.", optional=True)
    calibration: Calibration | None = said("Data of fixed scales.", optional=True)
    endpoints: dict[str, Endpoint] = said("What is measured, on how much.", by=("measure", ENDPOINTS))
    gates: dict[str, Gate] | None = said("Limits.", by=("statistic", GATES), optional=True)
    certificates: Certificates | None = said("Which gates certify what, at which levels.", optional=True)
    contrasts: dict[str, Contrast] | None = said("Direct comparisons between candidates.", optional=True)
    workloads: dict[str, Workload] | None = said("Loads.", optional=True)
    timing: Timing | None = said("Blocks.", optional=True)
    sweep: Sweep | None = said("Saturation.", optional=True)
    guards: dict[str, Guard] | None = said("Descriptive looks at other loads.", optional=True)
    memory: Memory | None = said("Sampling and ceilings.", optional=True)
    engine: Engine | None = said("Set-up of the worker.", optional=True)
    fused: Fused | None = said("How the fused backend carries it out.", optional=True)
    speculation: Speculation | None = said("Arms that draft, and how.", optional=True)
    stages: list[str] = said("Stages in their order.")
    stops: list[Stop] = said("Predeclared rules by which later stages do not run.")
    audits: dict[str, str] | None = said("Further predeclared checks, in words.", optional=True)
    expected: dict[str, dict[str, str]] | None = said(
        "Verdicts that a reproduction should find: unit -> comparison or gate -> verdict. They move no verdict.",
        among=VERDICTS,
        optional=True,
    )
    claims_forbidden: list[str] = said("Claims that its results do not carry.", among=vocabulary.CLAIMS)
    unprinted: dict[str, str] = said("Key -> why it has no default; each of them is `???` in the file.", dotted=True)
