"""What people call metrics, units and designs in requests for an experiment. Patterns only; the text has plain numbers, lower case."""

from types import MappingProxyType

CLUSTERS = MappingProxyType(
    {
        "territory": r"territor(?:y|ies)",
        "district": r"districts?",
        "rep": r"reps?|representatives?",
        "clinic": r"clinics?",
        "practice": r"practices?|offices?",
        "hospital": r"hospitals?|wards?|idns?|networks?|cent(?:er|re)s",
        "account": r"accounts?",
        "site": r"sites?",
        "pharmacy": r"pharmac(?:y|ies)|stores?",
        "market": r"dmas?|dma s|markets?|metros?|cit(?:y|ies)|zips?|states?",
        "region": r"regions?",
        "agent": r"agents",
    }
)
"""Units that hold several HCPs, patients or customers; only regions are in the data."""
PEOPLE = MappingProxyType(
    {
        "HCP": (
            r"hcps?|docs?|doctors?|physicians?|prescribers?|nps?|pcps?|gps?|cardiologists?|rheumatologists?|dermatologists?|derms?"
            r"|allergists?|nephrologists?|oncologists?|h?a?ematologists?|neurologists?|surgeons?|specialists?|targets"
        ),
        "patient": r"patients?|enrolments?|enrollments?|new starts|starts",
        "recipient": r"recipients?|users?|customers?|visitors?|visits a|visits per|audience|subscribers?",
    }
)
ABSENT_SPECIALISTS = r"cardiologists?|rheumatologists?|neurolog\w+|surgeons?|pcps?|gps?|primary care"

METRICS = (
    (r"nbrx|new to brand", "nrx", "NBRx"),
    (r"nrx|new (?:prescriptions|scripts)", "nrx", None),
    (r"conv(?:ersion)?s?(?: rate)?\b", "conversion_rate", None),
    (r"market share", "market_share", None),
    (r"trx|(?<!rep )(?<!call )(?<!sales )scripts\b|prescriptions?|prescribing|writing|what they write", "trx", None),
)
"""Metrics that the data have: pattern, KPI, and what was asked where the KPI only stands in."""
ABSENT_RATES = (
    (r"open rates?|opens\b|subject lines?", "open rate"),
    (r"click\w*|landing pages?|home ?pages?|banners?|checkout|pages?\b", "click-through rate"),
    (r"opt[ -]ins?", "opt-in rate"),
    (r"refill\w*", "refill rate"),
    (r"adherence|adherance|persisten\w+|dropouts?", "adherence rate"),
    (r"abandon\w*|retention|enrol\w+|response rates?|binary outcome|binary", "response rate"),
)
"""Rates that the data do not have: a unit either does it or not."""

DESIGNS = MappingProxyType(
    {
        "stepped_wedge": (
            r"step(?:ped)?[ -]?wedge|stepped|stagger\w*|wait ?list|delayed start|gets? (?:it|one) eventually|den(?:y|ied) |must wait"
            r"|withhold(?:ing)? .{0,40}(?:from any|any)|won t let us withhold|which (?:regions|wards?|sites?) .{0,30}first"
            r"|(?:in )?what order|which order|region by region|batch\w*"
        ),
        "crossover": r"cross ?-?over|switch ?back",
        "factorial": r"factorial|\d ?x ?\d\b",
        "matched": r"match(?:ed|ing|es)?\b|pair(?:s|ed)?\b|comparable",
        "holdout": (
            r"hold ?-?outs?|hold back|held back|hold out|with ?-?hold|withold|untouched|leave out|left out|leave some|control pool|dark\b"
            r"|go without|keep out|kept out|get nothing"
        ),
        "ab_test": r"subject lines?|a b\b|a/b(?:/n)?|landing pages?|banners?|send[ -]?time",
    }
)
CLUSTER_WORDS = (
    r"contaminat\w+|spill\w*|copied|copy\b|talk to each other|(?:reps?|doctors?|docs) talk|share offices|hear (?:all )?about|cluster\w*"
    r"|swapping notes|can t randomi[sz]e single"
)
LOOK_WORDS = (
    r"stopping rules?|stop early|stopped early|stop the test early|sequential\w*|peek\w*|looks\b|looking at|interim|when i may look"
    r"|when (?:may|can|do|should) (?:we|i) stop|when we (?:may )?stop|calling (?:it|a winner)"
)
WEEKLY_LOOKS = (
    r"every (?:week|monday|friday)|(?:look\w*|peek\w*|results|check\w*) (?:\w+ ){0,2}weekly|weekly (?:look|peek|check)s?|each week"
)
NON_INFERIORITY = r"non ?-?inferior\w*|as good as|just as well|don t hurt|no worse"
SEASON_WORDS = r"holidays?|season\w*|christmas|summer|eyeballed|before and after|before/after"
BUILD_UP_WORDS = r"more time|habits?|long enough|enough|too short|how long|how many (?:weeks|months|days)|weeks"

_HOLD = r"hold ?-?out|held? back|with ?-?hold|withold|untouched|without|dark|control pool|leave|keep"
DECISIONS = (
    (
        "share",
        rf"(?:{_HOLD}).{{0,80}}(?:how (?:big|large|many)|what (?:share|fraction|portion)|size|\d+ ?%? or \d|percentage|enough|share)"
        r"|(?:what (?:share|fraction|percentage)|how (?:big|large)|size (?:of )?the|\d+ ?%? or \d+ ?%).{0,90}"
        r"(?:hold|held|with|untouched|slice|dark)|hold ?-?out (?:size|percentage|%)",
    ),
    (
        "sample_size",
        r"how many\b(?! (?:weeks|days|months|arms|looks))|sample size|number of (?:patients|agents|reps|doctors|weeks)|group sizes"
        r"|what sample|how big|minimum n\b|\bn per arm|per arm\b",
    ),
    (
        "smallest_effect",
        r"(?:smallest|smalest|minimum|minimal|min|least) (?:detectable )?(?:effect|difference|lift|change)|\bmde\b(?! \d*\.\d)"
        r"|(?:able|could|can|would|ever) (?:we |be able )?(?:to )?(?:detect|see|pick up|learn)|what .{0,20}could we (?:detect|pick up)",
    ),
    (
        "duration",
        r"how long|how many (?:weeks|days|months)|(?:weeks|months) (?:of runtime )?(?:long )?enough|long enough|too? short|run[ -]?length"
        r"|weeks? .{0,25}enough|enough.{0,20}weeks|test length|duration|when can we (?:stop|read)",
    ),
    ("power", r"\bpower\b|underpowered|enough|feasible|informative|worth (?:it|to|starting)|reach a conclusion"),
    (
        "assignment",
        r"who (?:gets?|should|goes|to leave|s in)|which (?:doctors|docs|regions|territories|districts|hcps|dmas|ones|half)|choose"
        r"|pick\b|select|assign\w*|randomi[sz]\w*|stratif\w*|match\w*|draw\b|split|control (?:group|grp)|in and (?:who|out)",
    ),
    (
        "design",
        r"stepped|wedge|cross ?-?over|parallel|factorial|bandit|switch ?back|cluster|contaminat|rep or (?:by )?(?:doctor|territory)"
        r"|by (?:rep|doctor|clinic) or",
    ),
)
"""What a question wants decided, the most specific first; a plan answers all of it, the decision is what the answer begins with."""
