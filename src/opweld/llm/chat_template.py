"""Messages of a chat as the text that a model was trained on, by the template that came with it.

Templates are untrusted programs in Jinja's language. They run in its sandbox, in a process of their own
(`chat_template_process.py`) that has little memory and time; it waits between two chats, so that one takes 0.1 ms more.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing import spawn
from pathlib import Path
from typing import Any, cast

from opweld.errors import InputError, ModelError, ToolchainError
from opweld.llm.packages import package
from opweld.shortage import check_shortage

Message = Mapping[str, Any]

SECONDS = 2.0
"""Processor time of a rendering."""
BYTES = 1 << 29
"""Address space of the process that renders, Python's own included."""
CHARACTERS = 1 << 24
"""The longest text of a chat."""

_SCRIPT = Path(__file__).with_name("chat_template_process.py")


class ChatTemplate:
    """Templates by name, "default" and perhaps "tool_use", and the tokens that they may name."""

    def __init__(self, templates: Mapping[str, str], tokens: Mapping[str, str]) -> None:
        self.templates, self.tokens = dict(templates), dict(tokens)
        self._process: _Process | None = None
        self._lock = threading.Lock()

    def render(
        self, messages: Sequence[Message], tools: Sequence[Any] | None, add_generation_prompt: bool, **kwargs: object
    ) -> str:
        """The text of a chat.

        Raises InputError where the template refuses the messages or takes more than it may, and ModelError where it is
        no template."""
        values = self.tokens | kwargs | {"tools": tools or None, "add_generation_prompt": add_generation_prompt}
        values["messages"] = [prepared(message) for message in messages]
        name = "tool_use" if tools and "tool_use" in self.templates else "default"
        request = {"template": self.templates[name], "values": values, "seconds": SECONDS}
        try:
            data = json.dumps(request).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"messages of a chat are what JSON can write: {error}") from error
        with self._lock:
            answer = self._ask(data)
        if "invalid" in answer:
            line, message = answer["invalid"]
            raise ModelError(f"the model's chat template is not valid in line {line}: {message}; give another one")
        if "refused" in answer:
            raise InputError(f"the model's chat template refuses these messages: {answer['refused']}")
        return answer["text"]

    def _ask(self, data: bytes) -> dict[str, Any]:
        process = self._process = self._process or _Process()
        answer = process.ask(data)
        if isinstance(answer, int):
            self._process = None  # the next chat has another one
            told = f"it takes more than {SECONDS:g} s of processor time"
            return {"refused": told if answer == -signal.SIGPROF else f"its process ended with status {answer}"}
        return answer


class _Process:
    """A process that renders, until nobody refers to it."""

    def __init__(self) -> None:
        package("jinja2")  # with a remedy where it is missing
        task = {"path": sys.path, "bytes": BYTES, "characters": CHARACTERS}
        command = [spawn.get_executable(), "-I", "-S", str(_SCRIPT), json.dumps(task)]
        try:
            # In a session of its own: Ctrl-C is for who waits for an answer.
            self._running = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            check_shortage(error)
            raise ToolchainError(f"cannot start {command[0]!r}, which renders chat templates: {error}") from error
        weakref.finalize(self, _end, self._running)

    def ask(self, data: bytes) -> dict[str, Any] | int:
        """The answer to a request; the exit status of a process that ended in place of one."""
        to, back = self._running.stdin, self._running.stdout
        assert to is not None and back is not None, "they are pipes"
        try:
            to.write(len(data).to_bytes(8, "little") + data)
            to.flush()
        except BrokenPipeError:
            return self._running.wait()
        size = int.from_bytes(back.read(8), "little")
        answer = back.read(size) if size else b""
        return json.loads(answer) if size and len(answer) == size else self._running.wait()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Its input ends, and so does it."""
    process.communicate()


def prepared(message: Message) -> dict[str, Any]:
    """A message as templates expect it: parts of text are one text, and arguments of tools are objects, not JSON."""
    found = dict(message)
    content = found.get("content")
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        if all(isinstance(part, dict) and cast("dict[str, Any]", part).get("type") == "text" for part in parts):
            found["content"] = "\n".join(str(part.get("text", "")) for part in parts)
    if isinstance(found.get("tool_calls"), list):
        found["tool_calls"] = [_called(call) for call in cast("list[Any]", found["tool_calls"])]
    return found


def _called(call: Any) -> Any:
    """A call of a tool whose arguments are read."""
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):  # pyright: ignore[reportUnknownMemberType]
        return cast("Any", call)
    known = cast("dict[str, Any]", call)
    function = dict(known["function"])
    if isinstance(function.get("arguments"), str):
        try:
            function["arguments"] = json.loads(function["arguments"] or "{}")
        except ValueError as error:
            raise InputError(
                f"the arguments of the tool call {function.get('name')!r} are not JSON: {error}"
            ) from error
    return known | {"function": function}
