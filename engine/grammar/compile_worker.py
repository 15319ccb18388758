"""The program of the compile process: hold one vocabulary, compile each job in a fork of its own.

Run by path, never imported: it stands on the standard library, on the native cores of the backends and on files of ours that
stand on no more, so that it starts quickly and stays small. Its parent is `compile_process.py`. One thread, so forking is safe; a
fork is killed at its deadline, on demand, and when the parent goes away, and what it held is given back to the machine.

Lines of JSON go both ways. In: `{"job", "backend", "source", "result", "timeout_s", "memory_bytes", "niceness", "is_background",
"keep_over_s"}` and `{"cancel": job}`; out, per job: `{"job", "status", "seconds", "message", "is_kept"}`. Two are paths: `source`
is the text to parse as its backend writes it, `result` takes the compiled one, if compiling took `keep_over_s` (xgrammar only:
llguidance cannot write it, and its compile only proves here that it ends).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import threading
import time
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from typing import Any

PR_SET_PDEATHSIG = 1
POLL_S = 5.0
STACK_BYTES = 512 * 2**20
RAW_VOCABULARY = 0
VOCABULARY = "vocabulary"


def _load_core() -> Any:
    """Import xgrammar's native core without the package around it, which loads torch and transformers (2 s and 280 MB more)."""
    try:
        sys.modules["torch"] = None  # type: ignore[assignment]  # the documented way to make an import fail
        spec = find_spec("xgrammar")
        assert spec is not None
        assert spec.submodule_search_locations is not None
        package = types.ModuleType("xgrammar")
        package.__path__ = list(spec.submodule_search_locations)
        package.__spec__ = spec
        sys.modules["xgrammar"] = package

        core = importlib.import_module("xgrammar.base")._core
        assert all(hasattr(core, name) for name in ("Grammar", "GrammarCompiler", "TokenizerInfo"))
        return core
    except Exception:  # another version of xgrammar, laid out differently
        for name in [name for name in sys.modules if name == "torch" or name.partition(".")[0] == "xgrammar"]:
            del sys.modules[name]
        return importlib.import_module("xgrammar.base")._core


def _load_file(path: str) -> Any:
    """Import one file by its path, without the package that it is a part of, which loads torch."""
    spec = spec_from_file_location(os.path.basename(path).partition(".")[0], path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read_vocabulary(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        header: dict[str, Any] = json.loads(file.readline())
        header["tokens"] = [file.read(length) for length in header.pop("lengths")]
    return header


@dataclass
class _Job:
    number: int
    pid: int
    pipe: int
    deadline: float
    started: float = field(default_factory=time.monotonic)
    answer: bytes = b""
    status: str = ""


class _XGrammar:
    def __init__(self, vocabulary: dict[str, Any]) -> None:
        self._core = _load_core()
        self._text = _load_file(os.path.join(os.path.dirname(__file__), "backends", "xgrammar_text.py"))
        info = self._core.TokenizerInfo(
            vocabulary["tokens"], RAW_VOCABULARY, vocabulary["vocab_size"], vocabulary["stop_token_ids"], False
        )
        self._compiler = self._core.GrammarCompiler(info, 1, False, -1, False)

    def compile(self, source: str) -> Any:
        return self._compiler.compile_grammar_ebnf(self._parse(json.loads(source)))

    def _parse(self, order: dict[str, Any]) -> Any:
        grammar = self._core.Grammar
        if "grammar" in order:
            return grammar.deserialize_json(order["grammar"])
        if "ebnf" in order:
            return grammar.from_ebnf(order["ebnf"], "root")
        schema = self._text.SchemaOrder(**order["schema"])
        ebnf = self._text.write_ebnf(schema, lambda *arguments: grammar.from_json_schema(*arguments).to_string())
        return grammar.from_ebnf(ebnf, "root")


class _LLGuidance:
    def __init__(self, vocabulary: dict[str, Any]) -> None:
        import llguidance

        self._library = llguidance
        # Attributes that llguidance reads from a tokenizer.
        self.tokens = vocabulary["tokens"]
        self.eos_token_id = vocabulary["stop_token_ids"][0]
        self.bos_token_id = None
        self.special_token_ids: list[int] = []
        self._tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(self))

    def __call__(self, text: bytes | str) -> list[int]:
        return []

    def compile(self, source: str) -> None:
        matcher = self._library.LLMatcher(self._tokenizer, source, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())


class _Worker:
    def __init__(self, vocabulary: dict[str, Any], out: int) -> None:
        self._vocabulary = vocabulary
        self._backends: dict[str, Any] = {}
        self._out = out
        self._parent = os.getppid()
        self._jobs: dict[int, _Job] = {}
        self._lines = b""

    def run(self) -> None:
        """Serve until the parent closes our input."""
        try:
            while self._serve():
                pass
        finally:
            for job in list(self._jobs.values()):
                self._kill(job, "cancelled")
                os.waitpid(job.pid, 0)

    def _serve(self) -> bool:
        if os.getppid() != self._parent:  # a fork of the parent may hold our input open
            return False
        now = time.monotonic()
        wait_s = min([POLL_S, *(job.deadline - now for job in self._jobs.values() if not job.status)])
        pipes = {job.pipe: job for job in self._jobs.values()}
        readable, _, _ = select.select([0, *pipes], [], [], max(0.0, wait_s))
        for pipe in readable:
            if pipe == 0:
                if not self._take_input():
                    return False
            else:
                self._take_answer(pipes[pipe])
        now = time.monotonic()
        for job in self._jobs.values():
            if not job.status and now >= job.deadline:
                self._kill(job, "deadline")
        return True

    def _take_input(self) -> bool:
        data = os.read(0, 1 << 16)
        *lines, self._lines = (self._lines + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "cancel" in order:
                job = self._jobs.get(order["cancel"])
                if job is not None and not job.status:
                    self._kill(job, "cancelled")
            else:
                self._start(order)
        return bool(data)

    def _start(self, order: dict[str, Any]) -> None:
        try:
            backend = self._backend(order["backend"])
        except Exception as error:  # the library does not load; the worker lives on for the other one
            self.say({"job": order["job"], "status": "error", "message": f"{order['backend']} does not load: {error}"})
            return
        read_end, write_end = os.pipe()
        worker = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(read_end)
                os.close(0)
                _tie_to(worker)
                _limit(order["memory_bytes"] + STACK_BYTES, order["timeout_s"])
                _step_back(order["niceness"], is_background=order["is_background"])
                _on_deep_stack(lambda: os.write(write_end, json.dumps(_compile(backend, order)).encode()))
                code = 0
            finally:
                os._exit(code)
        os.close(write_end)
        self._jobs[order["job"]] = _Job(order["job"], pid, read_end, time.monotonic() + order["timeout_s"])

    def _backend(self, name: str) -> Any:
        """Load a library before the fork, once, so that every job has it."""
        if name not in self._backends:
            self._backends[name] = {"xgrammar": _XGrammar, "llguidance": _LLGuidance}[name](self._vocabulary)
        return self._backends[name]

    def _take_answer(self, job: _Job) -> None:
        data = os.read(job.pipe, 1 << 16)
        if data:
            job.answer += data
            return
        os.close(job.pipe)
        _, code = os.waitpid(job.pid, 0)
        del self._jobs[job.number]
        answer = {"status": job.status or "crash", "message": _describe(code)}
        if not job.status and code == 0:
            with contextlib.suppress(ValueError):
                answer = json.loads(job.answer)
        elif not job.status and os.WIFSIGNALED(code) and os.WTERMSIG(code) in (signal.SIGXCPU, signal.SIGKILL):
            # The kernel was first: at the limit of CPU time, or because the machine ran out of memory.
            answer["status"] = "deadline" if time.monotonic() >= job.deadline else "memory"
        self.say({"job": job.number, "elapsed": time.monotonic() - job.started, **answer})

    def _kill(self, job: _Job, status: str) -> None:
        job.status = status
        with contextlib.suppress(ProcessLookupError):
            os.kill(job.pid, signal.SIGKILL)

    def say(self, answer: dict[str, Any]) -> None:
        """Write one line to the parent."""
        data = json.dumps(answer).encode() + b"\n"
        while data:
            data = data[os.write(self._out, data) :]


def _on_deep_stack(function: Callable[[], object]) -> None:
    """Compilers of grammars recurse; where a stack ends the process does."""
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def _compile(backend: Any, order: dict[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
    try:
        with open(order["source"], encoding="utf-8") as file:
            compiled = backend.compile(file.read())
        seconds = time.monotonic() - started
        is_kept = compiled is not None and seconds >= order["keep_over_s"]
        if is_kept:
            with open(order["result"], "w", encoding="utf-8") as file:
                file.write(str(compiled.serialize_json()))
    except BaseException as error:  # whatever happens here is the answer
        is_memory = isinstance(error, MemoryError) or "bad_alloc" in str(error)
        return {"status": "memory" if is_memory else "error", "message": str(error)[-2000:]}
    return {"status": "ok", "seconds": seconds, "is_kept": is_kept}


def _step_back(niceness: int, *, is_background: bool) -> None:
    """Run behind everybody else, and take no core from who wakes up; as far as the system can do that, and lets us."""
    with contextlib.suppress(OSError):
        os.nice(niceness)
    policy = getattr(os, "SCHED_IDLE" if is_background else "SCHED_BATCH", None)
    if policy is not None and niceness:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, policy, os.sched_param(0))


def _describe(code: int) -> str:
    if os.WIFSIGNALED(code):
        return f"it died of signal {os.WTERMSIG(code)}"
    return f"it ended with exit status {os.waitstatus_to_exitcode(code)}"


def _tie_to(worker: int) -> None:
    """Die with the worker, where the system can do that; elsewhere the limit of CPU time ends an orphan."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != worker:
            os._exit(1)


def _limit(memory_bytes: int, timeout_s: float) -> None:
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        seconds = int(timeout_s) + 2
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    # What is mapped already does not count. Where the system does not say how much that is, there is no cap.
    with contextlib.suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as file:
        limit = int(file.read().split()[0]) * resource.getpagesize() + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main(folder: str, import_path: str) -> None:
    """Read the vocabulary, say that we are ready, serve; `folder` is ours, `import_path` is where the parent found xgrammar."""
    out = os.dup(1)
    os.dup2(2, 1)  # nothing that a library prints may stand between our lines
    if import_path not in sys.path:
        sys.path.append(import_path)
    worker = _Worker(_read_vocabulary(os.path.join(folder, VOCABULARY)), out)
    try:
        worker.run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
