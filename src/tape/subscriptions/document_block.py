"""What all blocks of keys of a document have in common."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


def _titled(name: str, _field: object) -> str:
    return name.replace("_", " ").capitalize()


def _named(block: type) -> str:
    return block.__name__.removesuffix("Block").removesuffix("Document")


class DocumentBlock(BaseModel):
    """A block of keys; others than its own are refused."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        model_title_generator=_named,
        field_title_generator=_titled,
    )


def means(description: str, default: Any = ..., **options: Any) -> Any:
    return Field(default, description=description, **options)
