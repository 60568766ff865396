"""Searching policy articles: in Typesense where one is configured, otherwise in this process, and saying which."""

from __future__ import annotations

import json
import math
import os
import re
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from stateward.errors import UserError

Article = Mapping[str, str]  # id, title, text

_WORD = re.compile(r"[a-z0-9]+")


class PolicySearch(Protocol):
    """An index over articles. `backend` says in a sentence what answers."""

    backend: str

    def search(self, query: str, limit: int) -> list[str]:
        """Ids of the best articles, best first; fewer than `limit`, or none, if no word fits."""
        ...

    def close(self) -> None: ...


class WordSearch:
    """Articles ranked by the query's words in them: tf-idf, a title's word counts three times."""

    backend = "in-process word search (TYPESENSE_URL is not set)"

    def __init__(self, articles: Sequence[Article]) -> None:
        self._counts: dict[str, Counter[str]] = {}
        for article in articles:
            counts = Counter(_stems(article["text"]))
            for word in _stems(article["title"]):
                counts[word] += 3
            self._counts[article["id"]] = counts
        frequency = Counter(word for counts in self._counts.values() for word in counts)
        self._idf = {word: math.log(1 + len(articles) / n) for word, n in frequency.items()}

    def search(self, query: str, limit: int) -> list[str]:
        words = set(_stems(query))
        scores = {
            key: sum(self._idf[word] * math.log(1 + counts[word]) for word in words if word in counts)
            for key, counts in self._counts.items()
        }
        ranked = sorted((key for key, score in scores.items() if score > 0), key=lambda key: (-scores[key], key))
        return ranked[:limit]

    def close(self) -> None:
        pass


class TypesenseSearch:
    """One collection of the articles, made here and dropped by `close`.

    Every request opens and closes its own connection, so nothing has to cross a fork: a snapshot indexes the articles
    once, and all worlds forked from it search the same collection, which none of them writes to.
    """

    def __init__(self, articles: Sequence[Article], url: str, api_key: str) -> None:
        self._url, self._api_key = url.rstrip("/"), api_key
        self._collection = f"{os.environ.get('TYPESENSE_COLLECTION_PREFIX', '')}policy_{uuid.uuid4().hex}"
        self.backend = f"Typesense at {self._url}"
        fields = [{"name": name, "type": "string"} for name in ("title", "text")]
        self._request("POST", "/collections", {"name": self._collection, "fields": fields})
        for article in articles:
            self._request("POST", f"/collections/{self._collection}/documents", dict(article))

    def search(self, query: str, limit: int) -> list[str]:
        options = {"q": query, "query_by": "title,text", "query_by_weights": "3,1", "per_page": limit}
        # A question in whole sentences names words that no article has; dropping them is better than no answer.
        options["drop_tokens_threshold"] = limit
        path = f"/collections/{self._collection}/documents/search?{urllib.parse.urlencode(options)}"
        return [hit["document"]["id"] for hit in self._request("GET", path)["hits"]]

    def close(self) -> None:
        self._request("DELETE", f"/collections/{self._collection}")

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"X-TYPESENSE-API-KEY": self._api_key, "Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)


def open_search(articles: Sequence[Article]) -> PolicySearch:
    """Typesense if ``TYPESENSE_URL`` and ``TYPESENSE_API_KEY`` are set, otherwise `WordSearch`.

    A Typesense that is configured and does not answer is an error, never a silent change of backend.

    Raises:
        UserError: only one of the two variables is set.
        OSError: Typesense does not answer or refuses the key.
    """
    url, api_key = os.environ.get("TYPESENSE_URL", ""), os.environ.get("TYPESENSE_API_KEY", "")
    if not url and not api_key:
        return WordSearch(articles)
    if not (url and api_key):
        missing = "TYPESENSE_API_KEY" if url else "TYPESENSE_URL"
        raise UserError(
            f"{missing} is not set",
            "the other one is, so a Typesense is meant but cannot be reached",
            "set both or none",
        )
    return TypesenseSearch(articles, url, api_key)


def _stems(text: str) -> list[str]:
    """Lower-case words without a plural s, so that "renewals" finds "renewal"."""
    return [word.removesuffix("s") if len(word) > 3 else word for word in _WORD.findall(text.lower())]
