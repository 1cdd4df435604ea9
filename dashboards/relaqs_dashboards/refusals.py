"""What comes instead of a page: what happened and what to do, as a page to browsers and as text to others."""

from __future__ import annotations

import html
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, Response

_HEADINGS = {
    403: "This browser was not let in",
    404: "There is nothing here",
    405: "This cannot be done here",
    421: "This is not the server's name",
    503: "Too many connections",
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{heading} · ReLAQS</title>
<link rel="icon" href="data:,">
<style nonce="{nonce}">
body {{ max-width: 34rem; margin: 15vh auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif }}
h1 {{ font-size: 1.4rem }}
</style>
</head>
<body>
<main>
<h1>{heading}</h1>
<p>{said}</p>
{link}</main>
</body>
</html>
"""
_LINK = '<p><a href="/">Go to the first page</a></p>\n'


def refused(
    said: str, status: int, asked: Headers, nonce: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the answer to a request that is not served.

    Args:
        asked: its headers.
        headers: of the answer.
    """
    if "text/html" not in asked.get("accept", ""):
        return PlainTextResponse(said, status, headers)
    values = {"heading": _HEADINGS[status], "said": said, "nonce": nonce}
    page = {name: html.escape(value) for name, value in values.items()}
    return HTMLResponse(_PAGE.format(**page, link=_LINK if status == 404 else ""), status, headers)
