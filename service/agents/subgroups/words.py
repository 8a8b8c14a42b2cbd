"""What people call programmes, subgroups and doctors in questions of who responds. Patterns and names only; it reads no dispatch.

Patterns are written for a text in normal form: lower case, words of letters and digits, one blank between.
"""

from types import MappingProxyType

PROGRAMME_WORDS = MappingProxyType(
    {
        "speaker_programme": (
            r"speaker (?:program|programme|event|dinner|serie|stud|spend|talk)\w*|speakers?|dinner (?:program|programme)s?"
            r"|dinners?"
        ),
        "sample_programme": r"sampl(?:es?|ing)(?: (?:program|programme|drop)s?)?|starter packs?|muster",
        "email_campaign": (
            r"(?:triggered |lifecycle )?e ?mails?(?: (?:program|programme|campaign)s?)?|digital(?: (?:campaign|push"
            r"|promotion|stuff))?"
        ),
        "call_programme": (
            r"call (?:program|programme|plan|frequency|activity)|(?:hcp )?engagement(?: increase)?|(?:rep|sales|field"
            r"|in person|extra) visits?"
            r"|visits?|calls?|calling|detail(?:s|ing)?|field force|face to face"
        ),
    }
)
"""What names a programme of the data itself."""

STAND_INS = (
    (r"webinars?(?: (?:series|invites?))?", "webinars", "speaker_programme"),
    (r"peer (?:to|2) peer(?: (?:calls?|talks?|events?|videos?))?|peer (?:calls?|events?|talks?)|kol (?:videos?|roadshows?"
     r"|talks?)|symposi\w+",
     "peer talks", "speaker_programme"),
    (r"lunch(?:es)?(?: and learns?)?(?: (?:program|programme|meeting|visit)s?)?|conferences?"
     r"|congress(?: attendance)?", "lunches or congresses",
     "speaker_programme"),
    (r"msl (?:visits?|sessions?|calls?)|msls?|(?:medical )?liaison(?: visits?)?", "MSL visits", "call_programme"),
    (r"(?:remote|virtual|video|telehealth|hybrid)(?: (?:rep|detailing|visits?|calls?|model))", "remote visits", "call_programme"),
    (r"kam visits?|account plan|key account (?:visits?|plans?)", "key account visits", "call_programme"),
    (r"(?:tablet|ipad|detail|visual|sales) aid", "sales aids", "call_programme"),
    (r"e ?detail(?:s|ing)?|digital detailing", "e-detailing", "email_campaign"),
    (r"mailings?|mails?|letters?|leaflets?|brochures?|newsletters?|direct mail", "mailings", "email_campaign"),
    (r"omnichannel(?: program| programme)?|online (?:push|campaign)", "omnichannel contacts", "email_campaign"),
)  # fmt: skip
"""Near relatives: pattern, what it is called in the answer, and the programme of the data that stands in for it."""
GENERIC_WORDS = r"outreach|contact(?:s|ed|ing)?|touch(?:es|points?)?|promotions?|promo(?: push)?|reps?|blitz"
"""Promotion in general, for which the call programme stands in where nothing else is named."""

ABSENT_PROGRAMMES = (
    (r"(?:copay|co pay|savings|discount) ?(?:card|offer|program|programme|push|reminder|assistance|mailer)?s?", "copay or savings card"),
    (r"(?:nurse|after clinic|welcome|reminder|refill) (?:educator |phone )?(?:hotline|calls?|line|educators?|coaching|outreach"
     r"|program|programme)s?"
     r"|hotline|support (?:line|program|programme)", "nurse or patient calls"),
    (r"(?:refill|copay|text|adherence)? ?reminders?(?: (?:texts?|letters?|program|programme|app))?|text messages?|texts"
     r"|sms", "reminders or text messages"),
    (r"(?:adherence|patient|reminder|mobile) apps?|app|chatbot|portal", "app or chatbot"),
    (r"(?:c?tv|connected tv|radio|television)(?: (?:campaign|spot|ad|flight)s?)?|ads|adverts?|advertising|banners?|podcasts?"
     r"|instagram|social media"
     r"|awareness (?:campaign|program|programme)", "advertising"),
    (r"formulary(?: (?:win|restriction|messaging))?|payer win", "formulary change"),
    (r"price (?:cuts?|changes?|sensitivity|discounts?)|sensitivity to price|(?:hospital )?discounts?|rebates?|coupons?"
     r"|vouchers?|free shipping|caps?",
     "price or discount"),
    (r"(?:starter|welcome|onboarding|switch|discharge|helper|bridge)(?: \w+)? (?:kits?|program|programme)", "starter or welcome kit"),
    (r"coaching(?: program| programme)?|training(?: academy)?|academy|incentive (?:scheme|plan)s?|contest"
     r"|(?:rep )?turnover", "measures for reps"),
    (r"hub(?: (?:program|programme|enrol\w*|intervention))?|(?:loyalty|referral|onboarding) (?:program|programme)"
     r"|free transport", "hub or support programme"),
    (r"education modules?|patient story|videos?|messages?|messaging|layout|retention offer", "messages or videos"),
)  # fmt: skip
"""Programmes that the data do not have, and that nothing in them comes near to."""

DIMENSION_WORDS = MappingProxyType(
    {
        "setting": (
            r"academi\w+|teaching|universit\w+|community|hospitals?|office based|private (?:practices?|clinics?)"
            r"|(?:practice |by )settings?|settings?"
        ),
        "region": r"regions?|territor\w+|districts?(?! managers?)|states?|geograph\w+|neighbou?rhoods?|across the country",
        "decile": r"deciles?|tiers?|volume bands?|quintiles?",
        "specialty": r"speciali?t(?:y|ies)|specialisms?",
        "digital_affinity": r"digital (?:affinity|natives?|savvy)|digitally|tech savvy|early adopters?|online affinity",
        "panel_size": (
            r"panel sizes?|practice sizes?|hospital sizes?|size of (?:the )?(?:practice|hospital|clinic|office|account)s?"
            r"|(?:small|smaller|big|bigger|large|larger|solo)(?: and (?:small|big|large))? (?:group )?(?:offices?|practices?"
            r"|hospitals?|clinics?|accounts?|groups?|ones|pharmacies)"
            r"|solo|group practices?|(?:few|many) (?:eligible )?patients|number of patients"
        ),
        "potential": r"(?:market )?potential|market sizes?",
        "prior_writing": (
            r"already (?:prescribes?|writes?)|prior (?:volume|writing|prescribing)|prescribing volume|(?:high|low|mid|heavy"
            r"|light|big) (?:volume )?"
            r"(?:writers?|prescribers?)|(?:high|low|mid|heavy) volume|(?:new|experienced|first year) prescribers?|saturated"
        ),
        "prior_share": r"loyal\w*|prior (?:brand )?share|competitors?(?: writers?)?|fence sitters?|share of the brand",
        "brand": r"by brand|(?:per|each|which|across) brands?|between (?:the )?brands",
    }
)
"""What names a dimension of the data."""

ABSENT_DIMENSIONS = (
    (r"patients? age|age of (?:the )?patients?|(?:younger|older|young|old) (?:and (?:young"
     r"|old) )?patients?", "the patients' age", ("panel_size",)),
    (r"age(?: (?:bands?|groups?))?|young\w*|old|older|oldest|over (?:50|55|60|65|70)s?|seniors?|generations?"
     r"|demographics?", "age", ("digital_affinity",)),
    (r"years (?:since graduation|of experience)|tenure\w*|seniority|rookies?|newbies|veterans?|fellows?|experience", "years of practice",
     ("prior_writing",)),
    (r"gender|sex|men|women|m[ae]n|wom[ae]n|males?|females?", "gender", ("setting",)),
    (r"insur\w+|payers?(?: (?:mix|type|mixes|types))?|medicare|medicaid|commercial\w*|deductibles?|cash (?:payers?|patients?)"
     r"|coverage", "insurance or payer",
     ("setting",)),
    (r"incomes?|poverty|zip codes?|by zip", "income", ("region",)),
    (r"rural|urban|villages?|city|cities|remote area|broadband|metro\w*", "rural or urban place", ("region", "setting")),
    (r"nps?|pas|mds?|nurse practi\w+|physician assistants?", "profession (MD, NP, PA)", ("specialty",)),
    (r"ethnic\w*|races?|languages?|spanish", "ethnic group or language", ("region",)),
    (r"idns?|independents?|chains?|ownership|affiliated|affiliation", "ownership of the practice", ("setting", "panel_size")),
    (r"no see|access status", "access of reps", ("prior_writing",)),
    (r"newly diagnosed|naive|switchers|lapsed|severity|patient types?|types? of patients?|kinds? of patients?|which patients"
     r"|patient subgroups",
     "kinds of patients", ("panel_size", "setting")),
    (r"mornings?|afternoons?|fridays?|time of day", "time of the contact", ("setting",)),
)  # fmt: skip
"""What people ask to split by and the data do not have: pattern, name, and the nearest dimensions of the data."""

SPECIALISTS = MappingProxyType(
    {
        "Medical Oncology": r"(?:medical )?oncolog\w+",
        "Gynecologic Oncology": r"gyn(?:a?ecologic)?(?: oncolog\w+|s)|(?<!medical )oncolog\w+",
        "Hematology": r"ha?ematolog\w+",
        "Nephrology": r"nephrolog\w+|nephros?",
        "Dermatology": r"dermatolog\w+|derms?",
        "Allergy and Immunology": r"allerg\w+|immunolog\w+",
    }
)
ABSENT_SPECIALISTS = (
    r"cardiolog\w+|cardios?|cards|gps?|pcps?|primary care(?: doctors?)?|general practi\w+|family (?:doctor|medicine"
    r"|physician)s?|surgeons?|endocrin\w+"
    r"|lipidolog\w+|lipid specialists?|rheumatolog\w+|neurolog\w+|pa?ediatric\w+|psychiatr\w+|pulmonolog\w+|urolog\w+"
    r"|internists?|ophthalm\w+"
)
ABSENT_BRANDS = r"cosentyx|secukinumab|entresto|sacubitril|leqvio|inclisiran|pluvicto|scemblix|kesimpta|zolgensma|xolair"
"""Names of medicines that the data do not have; a catalogue may send others as entities."""
ABSENT_REGIONS = r"southeast|south east|southwest|south west|northwest|north west|europe|canada|germany"
"""Places that are none of the four regions, and would be taken for one, or for all, if they were passed over."""

SORTING_WORDS = (
    r"persuad\w+|sure things?|lost causes?|sleeping dogs?|individual effects?|policy tree|gates|clan|causal forest"
    r"|[trx] learner|qini|best responders?|responders?|profile"
)
HARM_WORDS = r"backfir\w*|negative\w*|annoy\w*|worse|harm\w*|less|minus|sleeping dogs?|sour|badly|wrong way|turns? us off|hates?"
DOSE_WORDS = (
    r"(?:second|third|fourth|fifth|2nd|3rd|4th|5th|extra|additional|another) (?:monthly |rep |msl )?(?:visits?|calls?"
    r"|contacts?)|call frequency|frequency"
    r"|doubl\w+|dose response|curves?|cadence|too many"
)
