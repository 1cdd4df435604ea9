"""A server of OpenAI's chat completions that knows two words. Each fifth question fails at first.

It prints its address, and counts what it answered and refused at /seen.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from itertools import count

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

SEEN: Counter[str] = Counter()
NUMBERS = count(1)


async def completions(request: Request) -> JSONResponse:
    if next(NUMBERS) % 5 == 0:
        SEEN["refused"] += 1
        status = 429 if SEEN["refused"] % 2 else 500
        return JSONResponse({"error": {"message": "later"}}, status, headers={"retry-after-ms": "1"})
    asked = await request.json()
    content = json.loads(asked["messages"][-1]["content"])
    wanted = asked["response_format"]["json_schema"]["schema"]["properties"]["answer"]
    SEEN["answered"] += 1
    answer = json.dumps({"answer": answered(wanted, is_broken="broke" in content["text"])})
    message = {"role": "assistant", "content": answer}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    reply = {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": asked["model"],
        "choices": [choice],
    }
    return JSONResponse(reply)


def answered(wanted: dict[str, object], *, is_broken: bool) -> object:
    if wanted.get("enum"):
        return "broken" if is_broken else "well"
    return {"boolean": is_broken, "number": float(is_broken)}.get(
        str(wanted["type"]), "it broke" if is_broken else None
    )


async def seen(request: Request) -> JSONResponse:
    return JSONResponse(SEEN)


APP = Starlette(routes=[Route("/v1/chat/completions", completions, methods=["POST"]), Route("/seen", seen)])

if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(APP, log_level="error")).run(sockets=[listening])
