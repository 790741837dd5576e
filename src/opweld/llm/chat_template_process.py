"""The process that `chat_template.py` starts, as a script: renders templates in Jinja's sandbox.

A template is an untrusted program. The sandbox keeps it from the machine, and not from taking all memory or never
ending: a string that is doubled forty times, a list that holds itself twice forty times and is then written, loops in
loops. What a process may take can be limited wherever in Python's own code it is taken, so it has one.

Each message, either way, is JSON behind its length in eight bytes. A request has `template`, `values` and `seconds`;
an answer is `text`, or `refused` with a reason, or `invalid` with a line and a reason. A rendering that takes more
processor time than `seconds` ends the process, by SIGPROF.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
from datetime import datetime
from typing import Any, BinaryIO

_MISTAKES = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What an expression of a template raises that does not suit the messages."""


def main() -> None:
    """Arguments: one JSON object with the `path` of modules, and the limits `bytes` of address space and `characters`
    of a text."""
    task = json.loads(sys.argv[1])
    sys.path[:] = task["path"]
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    templates = Templates(task["characters"])
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = task["bytes"] if hard == resource.RLIM_INFINITY else min(task["bytes"], hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while (request := _received(requests)) is not None:
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])
        answer = json.dumps(templates.rendered(request["template"], request["values"])).encode()
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(len(answer).to_bytes(8, "little") + answer)
        answers.flush()


def _received(file: BinaryIO) -> dict[str, Any] | None:
    head = file.read(8)
    return json.loads(file.read(int.from_bytes(head, "little"))) if len(head) == 8 else None


class Templates:
    """Compiled templates, in the environment of transformers, for which they are written."""

    def __init__(self, characters: int) -> None:
        self._characters = characters
        self._jinja2: Any = importlib.import_module("jinja2")
        sandbox: Any = importlib.import_module("jinja2.sandbox")
        extensions = ["jinja2.ext.loopcontrols", _generation(self._jinja2)]
        self._environment = sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=extensions
        )
        self._environment.filters["tojson"] = _tojson
        self._environment.globals["strftime_now"] = _strftime_now
        self._environment.globals["raise_exception"] = self._raise
        self._compiled: dict[str, Any] = {}

    def rendered(self, source: str, values: dict[str, Any]) -> dict[str, Any]:
        """An answer."""
        try:
            if source not in self._compiled:
                self._compiled[source] = self._environment.from_string(source)
            text = self._compiled[source].render(**values)
        except self._jinja2.TemplateSyntaxError as error:
            return {"invalid": [error.lineno, error.message]}
        except MemoryError:
            return {"refused": "it takes more memory than it may"}
        except (self._jinja2.TemplateError, *_MISTAKES) as error:
            return {"refused": str(error) or type(error).__name__}
        if len(text) > self._characters:
            return {"refused": f"it makes a text of {len(text)} characters, more than {self._characters}"}
        return {"text": text}

    def _raise(self, message: str) -> None:
        raise self._jinja2.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML's escapes, which Jinja's own filter writes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _generation(jinja2: Any) -> Any:
    """{% generation %} ... {% endgeneration %} marks what an assistant wrote, for training: here it is its contents."""
    extensions: Any = importlib.import_module("jinja2.ext")

    class Generation(extensions.Extension):
        """Its contents."""

        tags = frozenset(("generation",))

        def parse(self, parser: Any) -> Any:
            """The statements inside, in a scope of their own."""
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body).set_lineno(line)

    return Generation


if __name__ == "__main__":
    main()
