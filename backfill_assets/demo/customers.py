"""TheWorldShop's customers: where they live, what they are called, and in which currency they pay."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

CUSTOMERS = 40_000


@dataclass(frozen=True, slots=True)
class Country:
    """One country that the shop delivers to.

    Args:
        share: Of the customers; the shares need not add up to 1.
        rate: Units of the currency that one euro buys, roughly.
        step: Smallest amount that is charged, in hundredths of the currency.
        template: Order of the name's parts.
    """

    code: str
    currency: str
    share: int
    rate: float
    step: int
    given: tuple[str, ...]
    family: tuple[str, ...]
    template: str = "{given} {family}"


COUNTRIES = (
    Country(
        "DE",
        "EUR",
        20,
        1,
        1,
        ("Jürgen", "Käthe", "Sören", "Anna", "Björn"),
        ("Müller", "Weiß", "Schäfer", "Groß", "Vogel"),
    ),
    Country(
        "FR",
        "EUR",
        13,
        1,
        1,
        ("Zoé", "François", "Hélène", "Loïc", "Maëlle"),
        ("Lefèvre", "D’Aubigné", "Noël", "Garçon"),  # noqa: RUF001 (people are called so)
    ),
    Country("ES", "EUR", 8, 1, 1, ("Íñigo", "Begoña", "José María", "Lucía"), ("Núñez", "Ibáñez Peña", "García")),
    Country("GR", "EUR", 3, 1, 1, ("Ελένη", "Γιώργος", "Αθηνά"), ("Παπαδόπουλος", "Οικονόμου", "Νικολάου")),
    Country(
        "GB",
        "GBP",
        12,
        0.85,
        1,
        ("Siân", "Oliver", "Niamh", "Zadie"),
        ("O’Connor", "Smith-Jones", "Brontë", "Taylor"),  # noqa: RUF001 (people are called so)
    ),
    Country("US", "USD", 16, 1.1, 1, ("Mary-Ann", "DeShawn", "Renée", "John"), ("Johnson", "O’Neil", "Peña", "Nguyễn")),  # noqa: RUF001 (people are called so)
    Country("PL", "PLN", 6, 4.3, 1, ("Łukasz", "Żaneta", "Małgorzata"), ("Wójcik", "Dąbrowska", "Kowalczyk")),
    Country("UA", "UAH", 4, 45, 1, ("Олексій", "Їванка", "Ґалина"), ("Шевченко", "Кравець", "Лисенко")),
    Country("TR", "TRY", 4, 36, 1, ("İbrahim", "Işıl", "Çağla"), ("Yıldız", "Öztürk", "Şahin")),  # noqa: RUF001 (people are called so)
    Country("EG", "EGP", 2, 52, 1, ("محمد", "فاطمة", "أحمد"), ("عبد الله", "حسن", "السيد")),
    Country("IL", "ILS", 2, 4, 1, ("נועה", "יוסף", "תמר"), ("כהן", "לוי", "מזרחי")),
    Country("IN", "INR", 6, 92, 1, ("प्रिया", "अर्जुन", "लक्ष्मी"), ("शर्मा", "पटेल", "सिंह")),
    Country("TH", "THB", 2, 38, 1, ("สมชาย", "มาลี"), ("ใจดี", "ศรีสุข")),
    Country("JP", "JPY", 6, 163, 100, ("美咲", "蓮", "さくら", "健太"), ("佐藤", "髙橋", "𠮷田"), "{family} {given}"),
    Country("KR", "KRW", 3, 1_480, 10_000, ("서연", "민준", "하은"), ("김", "이", "박"), "{family}{given}"),
    Country("CN", "CNY", 5, 7.8, 1, ("伟", "芳", "秀英"), ("王", "李", "欧阳"), "{family}{given}"),
)


@dataclass(frozen=True, slots=True)
class Customers:
    """Every customer, by number less one.

    Args:
        countries: Index into the countries, `[customers]`.
        names: As the customer wrote it, `[customers]`.
    """

    countries: np.ndarray
    names: pa.StringArray


@lru_cache(maxsize=4)
def customers_of(seed: int) -> Customers:
    """Return the shop's customers, the same on every day."""
    rng = np.random.default_rng(seed)
    shares = np.array([country.share for country in COUNTRIES], dtype=np.float64)
    countries = np.searchsorted(np.cumsum(shares / shares.sum())[:-1], rng.random(CUSTOMERS), side="right")
    picks = rng.random((CUSTOMERS, 2)).tolist()
    names = []
    for place, (given, family) in zip(countries.tolist(), picks, strict=True):
        country = COUNTRIES[place]
        names.append(
            country.template.format(
                given=country.given[int(given * len(country.given))],
                family=country.family[int(family * len(country.family))],
            )
        )
    return Customers(countries, pa.array(names))
