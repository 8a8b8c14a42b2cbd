"""The true response curves behind the spending data, in one place. No agent imports this module.

`channel_data` generates from these constants. Spending is in k$ a week. A curve is a Hill curve: a line that gets `spend` a week
adds `top * spend**shape / (half**shape + spend**shape)` TRx a week. TOP and HALF are a brand's for the whole country; a region's
curve is the country's, scaled down by its weight in both directions, and a tier's has its own weight in each direction.
"""

from types import MappingProxyType

SEED = 4107
EXPERIMENT_WEEKS = 52
"""Weeks in which the spending of each line was set at random, so that its effect could be measured."""
USUAL_WEEKS = 13
"""The last weeks: spending as planned, which is what "current" means."""
LEVELS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5)
"""What the experiment multiplied the planned spending by."""
WEEKLY_WOBBLE = 0.05

CHANNELS = ("calls", "emails", "speaker", "samples", "paid_search")
TIERS = ("A", "B", "C")

SHAPE = MappingProxyType({"calls": 1.2, "emails": 1.0, "speaker": 1.5, "samples": 1.0, "paid_search": 1.1})
"""Above 1 a channel needs a critical mass: its first dollars return less than the following ones."""

TOP = MappingProxyType(
    {
        "Kisqali": (380.0, 8.0, 80.0, 40.0, 45.0),
        "Fabhalta": (300.0, 6.0, 70.0, 25.0, 55.0),
        "Remibrutinib": (200.0, 7.0, 30.0, 60.0, 110.0),
    }
)
"""The most TRx a week that a channel (in the order of CHANNELS) can add, at endless spending."""
HALF = MappingProxyType(
    {
        "Kisqali": (100.0, 6.0, 30.0, 20.0, 40.0),
        "Fabhalta": (170.0, 5.0, 26.0, 15.0, 40.0),
        "Remibrutinib": (110.0, 6.0, 20.0, 18.0, 50.0),
    }
)
"""The spending in k$ a week at which half of TOP is reached."""
PLANNED_SPEND = MappingProxyType(
    {
        "Kisqali": (210.0, 16.0, 26.0, 30.0, 36.0),
        "Fabhalta": (160.0, 12.0, 18.0, 20.0, 20.0),
        "Remibrutinib": (130.0, 12.0, 16.0, 40.0, 44.0),
    }
)
"""k$ a week."""

REGION_WEIGHT = MappingProxyType(
    {
        "Kisqali": (0.27, 0.22, 0.31, 0.20),
        "Fabhalta": (0.26, 0.20, 0.30, 0.24),
        "Remibrutinib": (0.24, 0.22, 0.33, 0.21),
    }
)
"""Northeast, Midwest, South, West. Within a channel the best split over regions is by these weights."""
REGION_SPEND = MappingProxyType(
    {
        "Kisqali": (0.34, 0.22, 0.28, 0.16),
        "Fabhalta": (0.33, 0.21, 0.28, 0.18),
        "Remibrutinib": (0.28, 0.22, 0.32, 0.18),
    }
)
"""How the planned spending is split today: too much for the Northeast, too little for the West."""

TIER_DECILES = MappingProxyType({"A": (8, 10), "B": (4, 7), "C": (1, 3)})
TIER_TOP = (0.56, 0.34, 0.10)
TIER_HALF = (0.42, 0.36, 0.22)
TIER_SPEND = (0.40, 0.36, 0.24)

NOISE_SHARE = 0.05
NOISE_FLOOR = 0.25
"""The standard error of one measured week: this share of the line's TOP plus this many TRx."""
