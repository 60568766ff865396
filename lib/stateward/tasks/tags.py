"""Tags: free labels, and ``domain:NAME``, ``category:NAME``, ``eval:NAME`` and ``skip``."""

from __future__ import annotations

from typing import Any

from stateward.tasks.section import section
from stateward.tasks.yaml_text import Document


def flat_tags(document: Document, value: Any) -> list[str]:
    """The value of ``tags`` as a list of texts; its mapping form ({domain: …, labels: […]}) is written out.

    Raises:
        UserError: neither a list nor a mapping, or a tag that is not text.
    """
    if value is None:
        return []
    if isinstance(value, dict):
        tags = section(document, ("tags",), value, "tags", ("labels", "category", "domain", "eval_type", "skip"))
        flat = tags.texts("labels") + [f"category:{name}" for name in tags.texts("category")]
        flat += [f"domain:{tags.text('domain')}"] if "domain" in tags else []
        flat += [f"eval:{tags.text('eval_type')}"] if "eval_type" in tags else []
        return flat + (["skip"] if tags.flag("skip") else [])
    if not isinstance(value, list):
        raise document.mistake(("tags",), f"'tags' must be a list, not {value!r}", do="tags: [domain:retail]")
    for number, tag in enumerate(value):
        if not isinstance(tag, str):
            raise document.mistake(("tags", number), f"a tag must be text, not {tag!r}", do="put it in quotes")
    return list(value)


def merged_tags(scenario: list[str], own: list[str]) -> list[str]:
    """The scenario's tags and the test's own; the test's domain replaces the scenario's."""
    kept = [tag for tag in scenario if not (domain_of(own) and domain_of([tag]))]
    return list(dict.fromkeys([*kept, *own]))


def domain_of(tags: list[str]) -> str:
    """The last ``domain:`` tag's value in lower case, or nothing."""
    named = [tag for tag in tags if tag.lower().startswith("domain:")]
    return named[-1].split(":", 1)[1].lower() if named else ""


def is_skipped(tags: list[str]) -> bool:
    """Whether the dataset's authors took the test out."""
    return "skip" in (tag.lower() for tag in tags)
