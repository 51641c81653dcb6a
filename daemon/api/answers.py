"""How requests are read and how answers are written, errors included."""

from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from daemon.api.ports import Refused
from daemon.api.schemas import ErrorView

M = TypeVar("M", bound=BaseModel)

_HINTS = {
    "image": "name it as docker pull would",
    "command": "write it after --: stopgap submit --image IMAGE -- COMMAND…",
    "name": "choose another --name",
    "cpus": "ask for whole cores, for example --cpus 1",
    "mem_mib": (
        "--mem says what the job needs at its peak, for example --mem 2G; "
        "all memory of a node cannot be asked for"
    ),
    "mounts": "write --mount SOURCE:TARGET[:ro] with two absolute paths",
    "env": "write --env NAME=VALUE",
    "workdir": "name an absolute path in the container",
    "time_seconds": "leave --time out for no limit, or write for example --time 1-12:00:00",
    "output": "name an absolute path",
    "checkpoint": "choose --checkpoint criu, signal or none",
    "checkpoint_every_seconds": "leave --checkpoint-every out to have stopgap choose",
    "after_crash": "choose --after-crash hold or resume",
    "results": "name absolute paths in the container",
    "seconds": "wait for more than 0 seconds and at most a day",
}

#: How the command line spells a field.
_OPTIONS = {
    "image": "--image",
    "command": "the command",
    "name": "--name",
    "cpus": "--cpus",
    "mem_mib": "--mem",
    "mounts": "--mount",
    "env": "--env",
    "workdir": "--workdir",
    "time_seconds": "--time",
    "output": "--output",
    "checkpoint": "--checkpoint",
    "checkpoint_every_seconds": "--checkpoint-every",
    "after_crash": "--after-crash",
    "results": "--results",
    "seconds": "--wait",
}
_UNITS = {
    "mem_mib": " MiB",
    "time_seconds": " s",
    "checkpoint_every_seconds": " s",
    "seconds": " s",
}
#: What is wrong with a value, by pydantic's name for it.
_WORDS = {
    "greater_than_equal": "must be at least {ge}{unit}",
    "greater_than": "must be more than {gt}{unit}",
    "less_than_equal": "must be at most {le}{unit}",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "enum": "must be {expected}",
    "missing": "is missing",
    "extra_forbidden": "there is no such field",
    "too_long": "has more than {max_length} entries",
}


async def read(request: Request, model: type[M], limit: int) -> M:
    """
    Read a document of at most ``limit`` bytes.

    Raises:
        Refused: it is longer, or not valid.
    """
    return parse(await read_bytes(request, limit), model)


async def read_bytes(request: Request, limit: int) -> bytes:
    """
    Read a body of at most ``limit`` bytes.

    Raises:
        Refused: it is longer.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise Refused(f"the request is longer than {limit} bytes", "send less", 413)
    return bytes(body)


def parse(body: bytes, model: type[M]) -> M:
    """
    Read a document.

    Raises:
        Refused: with every problem of it.
    """
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as exc:
        raise _refusal(exc) from None  # its text would hold values of the environment


def one(view: BaseModel, status: int = 200) -> Response:
    """Answer with one document."""
    return Response(view.model_dump_json(), status, media_type="application/json")


def many(model: type[M], views: list[M]) -> Response:
    """Answer with a list of documents."""
    content = TypeAdapter(list[model]).dump_json(views)  # type: ignore[valid-type]  # known at run time
    return Response(content, media_type="application/json")


def tell_errors(app: FastAPI) -> None:
    """Have every error of the application answered as an ErrorView."""

    @app.exception_handler(Refused)
    def _refused(_: Request, exc: Refused) -> Response:
        return one(ErrorView(error=exc.error, hint=exc.hint), exc.status)

    @app.exception_handler(RequestValidationError)
    def _invalid(_: Request, exc: RequestValidationError) -> Response:
        problems = "; ".join(f"{error['loc'][-1]}: {error['msg']}" for error in exc.errors())
        return one(ErrorView(error=problems, hint="see docs/cli-json.md"), 400)

    @app.exception_handler(HTTPException)
    def _http(_: Request, exc: HTTPException) -> Response:
        hint = "client and daemon may be of different versions" if exc.status_code == 404 else ""
        return one(ErrorView(error=str(exc.detail), hint=hint), exc.status_code)

    @app.exception_handler(Exception)
    def _failed(_: Request, exc: Exception) -> Response:
        text = f"the daemon failed: {type(exc).__name__}"
        return one(ErrorView(error=text, hint="the daemon's log says more"), 500)


def _refusal(exc: ValidationError) -> Refused:
    problems, hints = [], []
    for error in exc.errors(include_url=False, include_input=False):
        # A default that could not be made because another field is at fault.
        if error["type"] == "default_factory_not_called":
            continue
        where, text = _where(error["loc"]), _text(error)
        problems.append(f"{where}: {text}" if where else text)
        hint = _HINTS.get(str(error["loc"][0])) if error["loc"] else "send JSON"
        if hint and hint not in hints:
            hints.append(hint)
    return Refused("; ".join(problems), "; ".join(hints))


def _where(loc: tuple[int | str, ...]) -> str:
    """Name a field as the command line does; which of several mounts it was is plain to see."""
    names = [str(step) for step in loc if not isinstance(step, int)]
    return " ".join([_OPTIONS.get(name, name) for name in names[:1]] + names[1:])


def _text(error: Any) -> str:
    words = _WORDS.get(error["type"])
    if words is None:
        text: str = error["msg"]
        return text.removeprefix("Value error, ")
    unit = _UNITS.get(str(error["loc"][0]), "")
    return words.format(unit=unit, **error.get("ctx", {}))
