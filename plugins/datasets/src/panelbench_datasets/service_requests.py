"""The public schema of city service requests (311), shared by the loader and the look-alike.

The vocabularies are the common entries of the city's published data dictionary and of the years
before the data that is loaded; everything else is "OTHER".
"""

from __future__ import annotations

from panelbench import Column, ColumnKind, PrivacyUnit, Schema

OTHER = "OTHER"
AGENCIES = (
    "DCWP", "DEP", "DHS", "DOB", "DOE", "DOHMH", "DOT", "DPR", "DSNY", "EDC", "HPD", "NYPD",
    "OTI", "TLC", OTHER,
)  # fmt: skip
COMPLAINTS = (
    "ABANDONED VEHICLE",
    "AIR QUALITY",
    "APPLIANCE",
    "BLOCKED DRIVEWAY",
    "BUILDING/USE",
    "CONSUMER COMPLAINT",
    "DAMAGED TREE",
    "DERELICT VEHICLES",
    "DIRTY CONDITION",
    "DOOR/WINDOW",
    "ELECTRIC",
    "ELEVATOR",
    "ENCAMPMENT",
    "FLOORING/STAIRS",
    "FOOD ESTABLISHMENT",
    "GENERAL",
    "GENERAL CONSTRUCTION/PLUMBING",
    "GRAFFITI",
    "HEAT/HOT WATER",
    "HOMELESS PERSON ASSISTANCE",
    "ILLEGAL DUMPING",
    "ILLEGAL PARKING",
    "LEAD",
    "MAINTENANCE OR FACILITY",
    "MISSED COLLECTION",
    "NEW TREE REQUEST",
    "NOISE",
    "NOISE - COMMERCIAL",
    "NOISE - RESIDENTIAL",
    "NOISE - STREET/SIDEWALK",
    "NOISE - VEHICLE",
    "NON-EMERGENCY POLICE MATTER",
    "OBSTRUCTION",
    "OVERGROWN TREE/BRANCHES",
    "PAINT/PLASTER",
    "PLUMBING",
    "RODENT",
    "SAFETY",
    "SANITATION CONDITION",
    "SEWER",
    "SIDEWALK CONDITION",
    "STREET CONDITION",
    "STREET LIGHT CONDITION",
    "TRAFFIC SIGNAL CONDITION",
    "UNSANITARY CONDITION",
    "WATER LEAK",
    "WATER SYSTEM",
    OTHER,
)
BOROUGHS = ("BRONX", "BROOKLYN", "MANHATTAN", "QUEENS", "STATEN ISLAND", "UNSPECIFIED")
UNSPECIFIED = "UNSPECIFIED"
LOCATIONS = (
    "1-2 FAMILY DWELLING",
    "3+ FAMILY APT. BUILDING",
    "3+ FAMILY MIXED USE BUILDING",
    "BUSINESS",
    "CLUB/BAR/RESTAURANT",
    "COMMERCIAL BUILDING",
    "HIGHWAY",
    "HOUSE OF WORSHIP",
    "MIXED USE",
    "OTHER (EXPLAIN BELOW)",
    "PARK",
    "PARK/PLAYGROUND",
    "RESIDENTIAL BUILDING",
    "RESIDENTIAL BUILDING/HOUSE",
    "RESTAURANT/BAR/DELI/BAKERY",
    "SIDEWALK",
    "STORE/COMMERCIAL",
    "STREET",
    "STREET/SIDEWALK",
    "SUBWAY",
    "VACANT LOT",
    OTHER,
)
CHANNELS = ("MOBILE", "ONLINE", "PHONE", "UNKNOWN", OTHER)
# The box around the five boroughs, in degrees.
LATITUDES, LONGITUDES = (40.49, 40.92), (-74.27, -73.68)


def _vocabulary(name: str, categories: tuple[str, ...], *, nullable: bool = False) -> Column:
    return Column(name=name, kind=ColumnKind.CATEGORICAL, categories=categories, nullable=nullable)


CATEGORICAL = (
    _vocabulary("complaint_type", COMPLAINTS),
    _vocabulary("agency", AGENCIES),
    _vocabulary("borough", BOROUGHS),
    _vocabulary("location_type", LOCATIONS, nullable=True),
    _vocabulary("open_data_channel_type", CHANNELS),
)
COORDINATES = (
    Column(name="latitude", unit="deg", lower=LATITUDES[0], upper=LATITUDES[1], nullable=True),
    Column(name="longitude", unit="deg", lower=LONGITUDES[0], upper=LONGITUDES[1], nullable=True),
)


def schema(
    *,
    min_rows: int,
    max_rows: int,
    nominal_users: int | None,
    coordinates: bool,
    title: str,
) -> Schema:
    """User tables of service requests at irregular times, in minutes."""
    return Schema(
        columns=(*CATEGORICAL, *(COORDINATES if coordinates else ())),
        unit=PrivacyUnit.USER,
        min_rows=min_rows,
        max_rows=max_rows,
        time_unit="minute",
        regular=False,
        nominal_users=nominal_users,
        title=title,
    )
