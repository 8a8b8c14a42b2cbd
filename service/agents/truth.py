"""The true numbers of the sample data: every effect that an agent should find, in one place.

`sample_data` generates from these constants and docs/agents.md prints them as a table. No agent imports this module: an
agent sees the data only. Units: TRx are prescriptions per HCP and week; conversion effects are differences of probability.
"""

from types import MappingProxyType

SEED = 2034
"""With this draw every 95 % interval of the effects by brand covers the truth; one of twenty misses in other draws, as it should."""
HCPS_PER_BRAND = 800
WEEKS = 104
PROGRAMME_WEEKS = 26
"""All programmes start 26 weeks before the end of the data."""
DRIFT_WEEKS = 8
"""Both drifts start 8 weeks before the end of the data."""

BRANDS = ("Kisqali", "Fabhalta", "Remibrutinib")
REGIONS = ("Northeast", "Midwest", "South", "West")
SETTINGS = ("academic", "community")
REGION_SHARE = (0.25, 0.22, 0.33, 0.20)
REGION_POTENTIAL = (1.10, 1.00, 0.90, 1.05)
"""How large an HCP's market is in each region, relative to the average: the South has the smaller HCPs."""
ACADEMIC_SHARE = 0.35

SPECIALTIES = MappingProxyType(
    {
        "Kisqali": ("Medical Oncology", "Gynecologic Oncology"),
        "Fabhalta": ("Hematology", "Nephrology"),
        "Remibrutinib": ("Dermatology", "Allergy and Immunology"),
    }
)
BASE_SHARE = MappingProxyType({"Kisqali": 0.40, "Fabhalta": 0.30, "Remibrutinib": 0.25})
"""The share of an average HCP's market that the brand holds at the end of the data, before regional gaps and programmes."""
WEEKLY_GROWTH = MappingProxyType({"Kisqali": 0.0020, "Fabhalta": 0.0035, "Remibrutinib": 0.0028})
"""Growth of the base share per week, as a part of its value at the end of the data."""
SEASON_AMPLITUDE = 0.08
SEASON_PERIOD = 52
NRX_SHARE = 0.35

ATTAINMENT = MappingProxyType(
    {
        "Kisqali": (1.00, 0.92, 0.78, 1.00),
        "Fabhalta": (1.00, 1.00, 1.00, 0.80),
        "Remibrutinib": (1.00, 0.85, 0.92, 1.00),
    }
)
"""The part of the attainable share that each region (in the order of REGIONS) reaches: the regional gaps."""

CALL_EFFECT = MappingProxyType({"Kisqali": (1.20, 0.60), "Fabhalta": (0.50, 0.50), "Remibrutinib": (0.90, 0.30)})
"""TRx effect of the call programme in (academic, community) practices."""
TRX_EFFECT = MappingProxyType({"speaker_programme": 0.40, "sample_programme": 0.25, "email_campaign": 0.0})
CONVERSION_EFFECT = MappingProxyType({"call_programme": 0.08, "speaker_programme": 0.03, "sample_programme": 0.0, "email_campaign": 0.0})

EMAIL_DRIFT = 1.6
"""In the last DRIFT_WEEKS weeks the mean number of emails is multiplied by this."""
CONVERSION_DROP = ("Fabhalta", "Northeast", -0.15)
"""In the last DRIFT_WEEKS weeks this brand's conversion probability changes by this much, in this region only."""

MISSING_PANEL_SIZES = 24
NEGATIVE_SAMPLE_ROWS = 12
