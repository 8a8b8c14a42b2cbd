"""The words of a request for a split: channels, units, groups, and what people ask for that the data do not have.

Every table maps a form to words in normal form (lower case, no punctuation). Only whole words count.
"""

import re
from types import MappingProxyType

CHANNEL_WORDS = MappingProxyType(
    {
        "calls": (
            "call|calls|visit|visits|overcall|detail|details|detailing|rep|reps|representative|representatives|field|sales force|"
            "salesforce|sales team|face to face|in person|f2f|headcount|head count|heads|fte|ftes|positions|"
            "salespeople|hires|touchpoint|touchpoints"
        ),
        "emails": "email|emails|e mail|e mails|mailing|mailings|sends|newsletter|newsletters|digital",
        "speaker": (
            "speaker|speakers|dinner|dinners|peer to peer|p2p|lunch|lunches|lunch and learn|lunch and learns|honoraria|event|events|"
            "speaker program|speaker programs|speaker bureau"
        ),
        "samples": "sample|samples|sampling|starter pack|starter packs|pack|packs|box|boxes|stock",
        "paid_search": "paid search|search|sem|ppc|clicks|digital",
    }
)
UNIT_WORDS = MappingProxyType(
    {
        "calls": "calls|visits|details|call|visit",
        "emails": "emails|sends|mailings",
        "speaker": "slots|slot|events|dinners|lunches|lunch and learns|speaker programs|speaker events|talks",
        "samples": "boxes|packs|samples|units",
        "paid_search": "clicks",
        "reps": (
            "reps|rep|representatives|representative|ftes|fte|people|heads|headcount|head count|positions|salespeople|sales reps|hires|"
            "new hires|vacant positions"
        ),
    }
)
"""The nouns that may follow a number; `reps` are people who make calls."""
STAND_INS = MappingProxyType(
    {"lunch": "speaker events", "lunches": "speaker events", "lunch and learns": "speaker events", "digital": "e-mails and paid search"}
)
"""Named things that are measured under another name; the answer says so."""

ABSENT_STAFF = (
    "nurse educator|nurse educators|nurse|nurses|msl|msls|kam|kams|key account manager|key account managers|call center|call centre|"
    "contact center|contact centre|inside sales|call center agents|contract sales team|email marketers"
)
ABSENT_CHANNELS = (
    "tv|television|connected tv|ctv|radio|print|journal|journals|congress|congresses|conference|conferences|booth|booths|webinar|webinars|"
    "display|social|programmatic|endemic|copay|copay support|rebate|rebates|patient support|patient programme|patient programmes|"
    "patient program|patient programs|phone|remote detailing|remote|virtual|journeys|agency|direct mail|infusion sites|conference passes|"
    "payers|sms|podcast|podcasts"
)
ABSENT_PLACES = (
    "city|cities|county|counties|state|states|territory|territories|district|districts|account|accounts|office|offices|clinic|clinics|"
    "hospital|hospitals|centre|centres|center|centers|idn|idns|zip|zips|sites|bricks"
)
REGION_WORDS = (
    "region|regions|regional|geography|geographies|areas|city|cities|county|counties|state|states|territory|territories|teritories|district|districts|"
    "northeast|midwest|south|west|northeastern|midwestern|southern|western"
)
TIER_WORDS = (
    "tier|tiers|decile|deciles|segment|segments|doctor|doctors|doc|docs|hcp|hcps|physician|physicians|target|targets|whom|customers|"
    "prescribers|account|accounts|office|offices|clinic|clinics|hospital|hospitals|practices|call plan|call list|frequency"
)
CHANNEL_LEVEL_WORDS = (
    "channel|channels|mix|tactic|tactics|promo|promotional|promotion|line items|line by line|lines|media|marketing|campaigns|programme|"
    "programmes|program money|by channel"
)
MONEY_WORDS = (
    "budget|budjet|money|spend|spending|dollar|dollars|promo|promotion|promotional|funds|investment|envelope|pot|invest|dough|cash"
)

FLAT = re.compile(
    r"\b(?:flat|same (?:total|budget|money|capacity|cost|spend|number|envelope)|(?:total|budget) (?:is )?(?:fixed|unchanged|constant)|"
    r"fixed (?:envelope|total|budget)|hiring is frozen|hiring freeze|already pay|we(?: ve| have) got|cost neutral|budget neutral)\b"
)
SIZE = re.compile(
    r"\b(?:how many (?:reps|ftes|people|heads|representatives|sales reps|salespeople)\b.*\b(?:need|should we have)|right siz\w*|"
    r"proper size|(?:what|which) head ?count|at what head ?count|spend(?:ing)? level that maximi[sz]es?|"
    r"how much should (?:we|i) (?:spend|invest)|what headcount do we need|too many reps)\b"
)
CUT = (
    r"cut|cuts|cutting|reduce|reduced|reducing|trim|lose|lost|losing|loses|drop|dropped|save|saving|give back|clawed back|take out|free up|"
    r"slash|shave|kill|freeze|remove|minus|less|fewer|down by|off|leave|gone|pull out|out of the|cancel|cancelled|axe"
)
ADD = r"additional|extra|more|unplanned|add|adding|added|increase|raise|offered|on top|hire|new hires|gained|plus|gave up|leftover|vacant"
AT_LEAST = r"at least|minimum|min|no less than|not less than|keep at least|floor of"
AT_MOST = r"at most|maximum|max|no more than|not more than|up to|cap|capped at|ceiling of|below"
UNTOUCHED = r"untouched|unchanged|as is|as it is|alone|fixed|protected|ring fenced"
OBJECTIVES = MappingProxyType(
    {
        "profit": "profit|profits|contribution|margin|margins|revenue|roi|net value|payback",
        "nrx": "nrx|nrxs|nbrx|nbrxs|new prescriptions|new scripts|new patients|new starts|new patient",
        "trx": "trx|trxs|scripts|prescriptions|sales|volume",
    }
)
UNMEASURED_GOALS = (
    "adherence|persistence|reach|attendance|workload|travel|satisfaction|market share|share of voice|awareness|conversion|nbrx"
)
PERIODS = (
    (
        r"\b(?:(?:fiscal )?(?:year|yr)|annual|annually|20[2-9]\d|12 months)\b",
        52.0,
    ),
    (r"\bh[12]\b|\bhalf year\b|\b(?:first|second|next|this|last|coming) half\b|\b(?:six|6) months\b", 26.0),
    (r"\bq[1-4]\b|\bquarter\b|\b(?:three|3) months\b", 13.0),
    (r"\b(?:this|next|a|per|the|last) month\b|\bmonthly\b|\bmonth\b", 52.0 / 12.0),
    (r"\b(?:this|next|the|one) (?:week|wk)\b", 1.0),
)
"""Patterns over the normal form, and weeks."""


def words_in(text: str, forms: str) -> list[str]:
    """Return the forms (separated by |) that occur as whole words in a text in normal form, in the text's order, longest first."""
    ordered = "|".join(sorted(forms.split("|"), key=len, reverse=True))
    return [found[0] for found in re.finditer(rf"(?<!\w)(?:{ordered})(?!\w)", text)]


def channels_in(text: str) -> tuple[str, ...]:
    """Return the channels that a text in normal form names, in the order of the data; words for what the data lack do not count."""
    cleaned = re.sub(rf"(?<!\w)(?:{ABSENT_STAFF}|{ABSENT_CHANNELS})(?!\w)", " ", text)
    return tuple(channel for channel, forms in CHANNEL_WORDS.items() if words_in(cleaned, forms))
