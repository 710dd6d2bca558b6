"""A web application that reads a topic while it serves requests:
KAFKA=localhost:9092 uvicorn --app-dir examples/asyncio web_application:app.

GET /orders returns how many orders each customer has, GET /health whether the application still reads them. The
consumer lives as long as the application: Starlette's lifespan, which FastAPI accepts as well (`FastAPI(lifespan=…)`).
After Ctrl-C or SIGTERM the application finishes the records that it has, commits, and leaves its group.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypedDict

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from kconsumer.aio import AsyncConsumer
from kconsumer.errors import WakeupError


class State(TypedDict):
    """What the requests see, as `request.state`."""

    orders: Counter[str]  # customer -> number of orders
    consumer: AsyncConsumer
    reading: asyncio.Task[None]


async def read(consumer: AsyncConsumer, orders: Counter[str]) -> None:
    """Count orders until `wakeup` is called."""
    try:
        async for record in consumer:
            orders[record.key] += 1
    except WakeupError:
        pass


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[State]:
    """Read in a task while the application runs. Then end the task, and close the consumer, which commits."""
    orders: Counter[str] = Counter()
    async with AsyncConsumer(
        "orders",
        bootstrap_servers=os.environ.get("KAFKA", "localhost:9092"),
        group_id="web",
        auto_offset_reset="earliest",
        key_deserializer="str",
    ) as consumer:
        reading = asyncio.create_task(read(consumer, orders))
        yield {"orders": orders, "consumer": consumer, "reading": reading}
        consumer.wakeup()  # not reading.cancel(): that would end the loop in the middle of a batch
        await reading


async def get_orders(request: Request) -> JSONResponse:
    """Returns the number of orders by customer."""
    return JSONResponse(request.state.orders)


async def get_health(request: Request) -> JSONResponse:
    """Returns the lag of each partition. The status is 503 if the task that reads has ended by an error."""
    reading, consumer = request.state.reading, request.state.consumer
    if reading.done():
        return JSONResponse({"error": repr(reading.exception())}, status_code=503)
    return JSONResponse({str(partition): consumer.current_lag(partition) for partition in consumer.assignment()})


app = Starlette(routes=[Route("/orders", get_orders), Route("/health", get_health)], lifespan=lifespan)
