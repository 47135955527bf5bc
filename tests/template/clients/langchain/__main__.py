"""Works with langchain-mcp-adapters, in an environment that has those: `python -m tests.template.clients.langchain WORK SITE`.

WORK is a function of `work`, SITE a JSON object; what it writes is one too, of the tools that were listed and those that were used.
"""
# mypy: ignore-errors
# What it imports is in that environment alone.

import asyncio
import base64
import json
import sys
import uuid

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

from tests.template.clients import work
from tests.template.clients.hands import Answer, Hands, Site


def client_of(site):
    server = {
        "transport": "streamable_http",
        "url": site.url,
        "headers": {"Authorization": f"Bearer {site.key}"},
    }
    return MultiServerMCPClient({"sandbox": server})


def answer_of(message):
    blocks = message.content
    if isinstance(blocks, str):
        blocks = [{"type": "text", "text": blocks}]
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    pictures = [base64.b64decode(block["base64"]) for block in blocks if block["type"] == "image"]
    return Answer("\n".join(texts), tuple(pictures), message.status == "error")


def calling(session):
    """Call tools as a model has them called, which is told anew of those that it does not know."""
    known = {}

    async def call(name, arguments):
        if name not in known:
            known.update({tool.name: tool for tool in await load_mcp_tools(session)})
        asked = {"type": "tool_call", "id": uuid.uuid4().hex, "name": name, "args": arguments}
        return answer_of(await known[name].ainvoke(asked))

    return call


async def main():
    do, site = getattr(work, sys.argv[1]), Site(**json.loads(sys.argv[2]))
    client = client_of(site)
    listed = [tool.name for tool in await client.get_tools()]
    async with client.session("sandbox") as session:
        hands = Hands(site, calling(session))
        await do(hands)
    sys.stdout.write(json.dumps({"listed": listed, "used": sorted(hands.used)}))


if __name__ == "__main__":
    asyncio.run(main())
