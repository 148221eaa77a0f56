"""Hadoop's FileSystem as Python sees it: paths and bytes in, paths, bytes and the names of Java's exceptions out."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

_NOTHING: Final[Mapping[str, str]] = {}


class Files:
    """A file system of its own: nothing that another has seen is remembered in it but what the process shares."""

    def __init__(
        self, spark: SparkSession, root: str, settings: Mapping[str, str] = _NOTHING, *, classes: Path | None = None
    ) -> None:
        """`classes`: a directory of others that the settings may name."""
        self.jvm = cast(Any, spark._jvm)
        self.hadoop = self.jvm.org.apache.hadoop.fs
        self.root = root
        context: Any = spark.sparkContext
        self.conf = self.jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
        for name, value in settings.items():
            self.conf.set(name, value)
        if classes:
            places = self.array("java.net.URL", self.jvm.java.net.URL(classes.as_uri() + "/"))
            self.conf.setClassLoader(self.jvm.java.net.URLClassLoader(places, self.conf.getClassLoader()))
        self.fs = self.hadoop.FileSystem.newInstance(self.path("").toUri(), self.conf)

    def path(self, name: str) -> Any:
        return self.hadoop.Path(name if "://" in name else self.root + name)

    def name(self, path: Any) -> str:
        """Of a path below the root; of another, as it is."""
        text: str = path.toString()
        return text.removeprefix(self.root)

    # what is there

    def write(self, name: str, data: bytes = b"", *, overwrite: bool = True) -> None:
        out = self.fs.create(self.path(name), overwrite)
        out.write(data, 0, len(data))
        out.close()

    def read(self, name: str) -> bytes:
        stream = self.fs.open(self.path(name))
        try:
            found: bytes = stream.readAllBytes()
            return found
        finally:
            stream.close()

    def status(self, name: str) -> Any:
        return self.fs.getFileStatus(self.path(name))

    def exists(self, name: str) -> bool:
        there: bool = self.fs.exists(self.path(name))
        return there

    def is_directory(self, name: str) -> bool:
        there: bool = self.status(name).isDirectory()
        return there

    def make(self, name: str) -> bool:
        made: bool = self.fs.mkdirs(self.path(name))
        return made

    def delete(self, name: str, *, recursive: bool = False) -> bool:
        deleted: bool = self.fs.delete(self.path(name), recursive)
        return deleted

    def rename(self, source: str, target: str) -> bool:
        renamed: bool = self.fs.rename(self.path(source), self.path(target))
        return renamed

    def listed(self, name: str) -> list[str]:
        """What is in a directory, directories with a '/' behind them."""
        found = self.fs.listStatus(self.path(name))
        return [self.name(one.getPath()) + "/" * one.isDirectory() for one in found]

    def every(self, name: str) -> list[str]:
        """All files below a directory, by one flat listing."""
        return [self.name(one.getPath()) for one in drained(self.fs.listFiles(self.path(name), True))]

    # Java

    def array(self, kind: str, *items: Any) -> Any:
        """A Java array of objects."""
        of = self.jvm.java.lang.reflect.Array
        made = of.newInstance(self.jvm.java.lang.Class.forName(kind), len(items))
        for at, item in enumerate(items):
            of.set(made, at, item)
        return made

    def buffer(self, size: int, *, direct: bool = False) -> Any:
        of = self.jvm.java.nio.ByteBuffer
        return of.allocateDirect(size) if direct else of.allocate(size)

    def allocate(self, *, direct: bool = False) -> Any:
        """`ByteBuffer::allocate`, as Java writes it."""
        invoke = self.jvm.java.lang.invoke
        buffer = self.jvm.java.lang.Class.forName("java.nio.ByteBuffer")
        kind = invoke.MethodType.methodType(buffer, self.jvm.java.lang.Integer.TYPE)
        method = invoke.MethodHandles.publicLookup().findStatic(
            buffer, "allocateDirect" if direct else "allocate", kind
        )
        function = self.jvm.java.lang.Class.forName("java.util.function.IntFunction")
        return invoke.MethodHandleProxies.asInterfaceInstance(function, method)

    def list_of(self, *items: Any) -> Any:
        found = self.jvm.java.util.ArrayList()
        for item in items:
            found.add(item)
        return found

    @contextmanager
    def refused(self, *names: str) -> Iterator[None]:
        """The block raises a Java exception that is one of these, by its own name or that of what it extends."""
        with pytest.raises((Py4JJavaError, CapturedException)) as raised:
            yield
        error = raised.value
        origin: Any = error._origin if isinstance(error, CapturedException) else error.java_exception
        kind = origin.getClass()
        kinds = []
        while kind is not None:
            kinds.append(kind.getSimpleName())
            kind = kind.getSuperclass()
        assert set(names) & set(kinds), f"{kinds}: {origin.getMessage()}"


def drained(iterator: Any) -> Iterator[Any]:
    """What a Hadoop iterator gives."""
    while iterator.hasNext():
        yield iterator.next()
