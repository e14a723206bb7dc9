"""LangGraph: a graph of two nodes in one process, with checkpoints in SQLite (WAL, synchronous=FULL).

`durability="sync"` stores a checkpoint before the next node begins. The default, "async", stores it meanwhile, so
that a crash repeats a node whose successor may have run. After a crash the program starts the run again.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from tests.peers.job import decide, serve, times_written, write


class State(TypedDict):
    run: str
    step: int
    decision: dict[str, Any]


class LangGraph:
    def __init__(self, folder: Path, saver: Any) -> None:
        async def think(state: State) -> dict[str, Any]:
            return {"decision": decide(state["step"])}

        async def act(state: State) -> dict[str, Any]:
            write(folder, state["run"], state["decision"]["arguments"]["line"])
            return {"step": state["step"] + 1}

        graph = StateGraph(State)
        graph.add_node("think", think)
        graph.add_node("act", act)
        graph.add_edge(START, "think")
        graph.add_conditional_edges("think", lambda state: END if state["decision"]["verdict"] == "done" else "act")
        graph.add_edge("act", "think")
        self._graph = graph.compile(checkpointer=saver)

    async def run(self, name: str) -> None:
        await self._invoke(name, {"run": name, "step": 0, "decision": {}})

    async def go_on(self, name: str) -> bool:
        found = await self._graph.aget_state({"configurable": {"thread_id": name}})
        if not found.values and not found.next:
            await self.run(name)
        elif found.next:
            await self._invoke(name, None)
        return True

    async def _invoke(self, name: str, state: State | None) -> None:
        config = {"configurable": {"thread_id": name}, "recursion_limit": 100}
        await self._graph.ainvoke(state, config, durability="sync")


async def main(folder: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:
        await saver.setup()
        await saver.conn.execute("PRAGMA synchronous=FULL")
        await serve(LangGraph(folder, saver), lambda: times_written(folder))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
