"""What goes in comes out equal, whatever it is called in JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

import pydantic
import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    RootModel,
    SecretBytes,
    SecretStr,
    computed_field,
    field_serializer,
)
from typing_extensions import TypedDict

from fencekit.cache.codec import codec_for

T = TypeVar("T")


class Colour(Enum):
    RED = "red"


class Plain(BaseModel):
    number: int
    when: datetime
    day: date
    span: timedelta
    price: Decimal
    id: UUID
    colour: Colour
    raw: bytes
    maybe: float | None = None
    nested: dict[str, list[tuple[int, str]]] = {}


class Aliased(BaseModel):
    by_alias: int = Field(alias="byAlias")
    by_two: int = Field(validation_alias="in", serialization_alias="out")
    by_choice: int = Field(validation_alias=AliasChoices("a", "b"))


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    side: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.side**2


class Page(BaseModel, Generic[T]):
    items: list[T]


class Numbers(RootModel[list[int]]):
    pass


class Typed(TypedDict):
    x: int


@dataclasses.dataclass
class Data:
    x: int
    y: list[str]


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class ByHand:
    """No pydantic: the two methods are enough."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByHand) and other.x == self.x

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def model_validate_json(cls, json_data: str) -> ByHand:
        return cls(json.loads(json_data)["x"])

    def model_dump_json(self) -> str:
        return json.dumps({"x": self.x})


class Overriding(BaseModel):
    x: int

    def model_dump_json(self, **_: Any) -> str:
        return json.dumps({"x": -self.x})

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **_: Any) -> Overriding:
        return cls(x=-json.loads(json_data)["x"])


class Infinite(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="constants")
    top: float = math.inf


PLAIN = Plain(
    number=1,
    when=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc),
    day=date(2026, 1, 2),
    span=timedelta(microseconds=1),
    price=Decimal("1.10"),
    id=UUID(int=7),
    colour=Colour.RED,
    raw="é".encode(),
    nested={"ü": [(1, "x")]},
)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Plain, PLAIN),
        (Aliased, Aliased.model_validate({"byAlias": 1, "in": 2, "b": 3})),
        (list[Aliased], [Aliased.model_validate({"byAlias": 1, "in": 2, "a": 3})]),
        (Computed, Computed(side=3)),
        (Page[Plain], Page[Plain](items=[PLAIN])),
        (Numbers, Numbers([1, 2])),
        (Typed, {"x": 1}),
        (Data, Data(1, ["y"])),
        (list[int], [1, 2]),
        (Cat | Dog, Dog(name="Rex")),
        (Annotated[Cat | Dog, Field(discriminator="kind")], Cat(lives=9)),
        (ByHand, ByHand(3)),
        (Overriding, Overriding(x=3)),
        (Infinite, Infinite()),
        (int, 5),
        (str, ""),
    ],
    ids=lambda value: getattr(value, "__name__", str(value))[:30],
)
def test_comes_back_equal(kind: Any, value: Any) -> None:
    codec = codec_for(kind, "")
    body = codec.encode(value)
    assert codec.read(body) == value
    codec.verify(value, body)


class WithSecret(BaseModel):
    name: str
    password: SecretStr


class WithSecretBytes(BaseModel):
    key: SecretBytes | None = None


class Deep(BaseModel):
    users: dict[str, list[WithSecret]]


class Excluded(BaseModel):
    kept: int
    dropped: int = Field(default=0, exclude=True)


class Unbounded(BaseModel):
    top: float = math.inf


class Unlike(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64")
    raw: bytes


@dataclasses.dataclass
class DataSecret:
    token: SecretStr


@pydantic.dataclasses.dataclass
class PydanticData:
    dropped: int = Field(default=0, exclude=True)


class TypedSecret(TypedDict):
    token: SecretStr


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (WithSecret, r"WithSecret\.password is a SecretStr"),
        (WithSecretBytes, r"WithSecretBytes\.key is a SecretBytes"),
        (Deep, r"Deep\.users\.password is a SecretStr"),
        (list[WithSecret], r"\.password is a SecretStr"),
        (Page[WithSecret], r"\.items\.password is a SecretStr"),
        (Excluded, r"Excluded\.dropped is excluded"),
        (Unbounded, r"Unbounded\.top is inf by default"),
        (Unlike, r"Unlike\.raw is bytes"),
        (TypedSecret, r"TypedSecret\.token is a SecretStr"),
        (DataSecret, r"DataSecret\.token is a SecretStr"),
        (PydanticData, r"PydanticData\.dropped is excluded"),
        (SecretStr, r"SecretStr is a SecretStr"),
    ],
)
def test_what_cannot_come_back_is_refused_with_its_field(kind: Any, field: str) -> None:
    with pytest.raises(TypeError, match=field):
        codec_for(kind, "")


class Told(BaseModel):
    password: SecretStr
    token: Annotated[SecretStr, PlainSerializer(lambda secret: secret.get_secret_value())]

    @field_serializer("password")
    def tell(self, password: SecretStr) -> str:
        return password.get_secret_value()


class Tree(BaseModel):
    children: list[Tree] = []


def test_a_secret_with_a_serializer_is_the_applications_own_choice() -> None:
    codec = codec_for(Told, "")
    value = Told(password=SecretStr("p"), token=SecretStr("t"))
    assert codec.read(codec.encode(value)) == value


def test_a_type_that_contains_itself() -> None:
    codec = codec_for(Tree, "")
    value = Tree(children=[Tree(), Tree(children=[Tree()])])
    assert codec.read(codec.encode(value)) == value


class Renamed(BaseModel):
    model_config = ConfigDict(defer_build=True)
    inner: Annotated[Aliased, PlainSerializer(lambda inner: inner.model_dump(by_alias=False))]


def test_aliases_are_seen_where_the_walk_does_not_go_and_before_the_type_is_built() -> None:
    codec = codec_for(Renamed, "")
    inner = Aliased.model_validate({"byAlias": 1, "in": 2, "a": 3})
    value = Renamed(inner=inner)
    assert codec.read(codec.encode(value)) == value


class Measured(BaseModel):
    value: float
    maybe: float | None = None


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_float_that_is_not_finite_is_refused_when_it_is_written(value: float) -> None:
    codec = codec_for(Measured, "")
    with pytest.raises(ValueError, match="Measured"):
        codec.encode(Measured(value=value))
    with pytest.raises(ValueError, match="Measured"):
        codec.encode(Measured(value=1.0, maybe=value))
    assert codec.read(codec.encode(Measured(value=1.0))) == Measured(value=1.0)


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a Cat, not Dog"):
        codec_for(Cat, "").encode(Dog(name="Rex"))
    with pytest.raises(TypeError, match="expected a ByHand, not int"):
        codec_for(ByHand, "").encode(1)


class Private(BaseModel):
    x: int
    _cached: int = pydantic.PrivateAttr(default=0)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, "many"),
        (dict[str, int], 5),
        (list[Data], [{"x": "left", "y": []}]),
        (Data, Data(x="left", y=[])),  # type: ignore[arg-type]
        (Plain, Plain.model_construct(number="many")),
    ],
    ids=str,
)
def test_a_value_that_nobody_could_read_is_refused(kind: Any, value: Any) -> None:
    with pytest.raises(ValueError, match="cannot be read back"):
        codec_for(kind, "").encode(value)


@pytest.mark.parametrize("kind", [int, list[int], Plain, Data, int | str], ids=str)
def test_none_is_no_value(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a .*, not None"):
        codec_for(kind, "").encode(None)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_a_value_of_another_type_that_reads_as_the_right_one_is_written() -> None:
    codec = codec_for(list[int], "")
    assert codec.read(codec.encode((1, 2))) == [1, 2]


def test_verify_finds_what_cannot_be_seen_of_the_type() -> None:
    codec = codec_for(Private, "")
    value = Private(x=1)
    value._cached = 5
    with pytest.raises(ValueError, match="does not come back equal"):
        codec.verify(value, codec.encode(value))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"lives": "many"}'])
def test_what_cannot_be_read_is_none_of_ours(body: bytes) -> None:
    assert codec_for(Cat, "").decode(body) is None
    assert codec_for(ByHand, "").decode(body) is None


def make(**fields: Any) -> Any:
    return pydantic.create_model("Profile", **fields)


def fingerprint(kind: Any, version: str | int = "") -> bytes:
    return codec_for(kind, version).fingerprint


def test_the_fingerprint_changes_with_the_schema_and_the_version_and_nothing_else() -> None:
    base = fingerprint(make(name=(str, ...)))
    assert fingerprint(make(name=(str, ...))) == base
    assert fingerprint(make(name=(str, Field(description="what they are called")))) == base
    assert fingerprint(make(title=(str, ...))) != base
    assert fingerprint(make(name=(int, ...))) != base
    assert fingerprint(make(name=(str, ...), age=(int, 0))) != base
    assert fingerprint(make(name=(str, ...)), 2) != base
    assert fingerprint(make(title=(str, ...))) != fingerprint(make(description=(str, ...)))


def test_the_fingerprint_does_not_tell_where_a_validator_lies_in_memory() -> None:
    def positive() -> Any:
        def check(value: int) -> int:
            return abs(value)

        return check

    def kind(check: Any) -> Any:
        class Own(BaseModel):
            number: Annotated[int, AfterValidator(check)]

            def model_dump_json(self, **options: Any) -> str:
                return super().model_dump_json(**options)

        class Odd(BaseModel):
            model_config = ConfigDict(arbitrary_types_allowed=True)
            lock: Annotated[slice, PlainValidator(slice)]
            numbers: list[Annotated[int, AfterValidator(check)]]

        return Own, Odd

    # Two functions of one name are what one function is in two processes.
    first, second = positive(), positive()
    for one, other in zip(kind(first), kind(second), strict=True):
        assert codec_for(one, "").fingerprint == codec_for(other, "").fingerprint


def test_a_type_without_a_json_schema_has_a_fingerprint_too() -> None:
    class Odd:
        @classmethod
        def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
            from pydantic_core import core_schema  # noqa: PLC0415

            return core_schema.no_info_plain_validator_function(
                lambda _: cls(),
                serialization=core_schema.plain_serializer_function_ser_schema(lambda _: "odd"),
            )

    assert fingerprint(make(odd=(Odd, ...))) != fingerprint(make(even=(Odd, ...)))
