"""Many patterns at once: the cost of a match follows the subject's depth, not their number."""

from typing import Generic, TypeVar

from tape.model.subject import Pattern

T = TypeVar("T")


class _Node(Generic[T]):
    __slots__ = ("any", "children", "deep", "ends")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.any: _Node[T] | None = None
        self.deep: list[T] = []
        self.ends: list[T] = []

    @property
    def barren(self) -> bool:
        return not (self.children or self.any or self.deep or self.ends)


class SubjectTrie(Generic[T]):
    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, pattern: Pattern, item: T) -> None:
        node = self._root
        for segment in pattern.segments:
            if segment == "*":
                node.any = node.any or _Node()
                node = node.any
            else:
                node = node.children.setdefault(segment, _Node())
        (node.deep if pattern.deep else node.ends).append(item)

    def remove(self, pattern: Pattern, item: T) -> None:
        """Forget one `add`; raises ValueError if there was none."""
        path = [self._root]
        for segment in pattern.segments:
            below = path[-1].any if segment == "*" else path[-1].children.get(segment)
            if below is None:
                raise ValueError(f"{pattern.text} was never added")
            path.append(below)
        (path[-1].deep if pattern.deep else path[-1].ends).remove(item)
        for segment, parent, node in zip(
            reversed(pattern.segments), reversed(path[:-1]), reversed(path[1:]), strict=True
        ):
            if not node.barren:
                return
            if segment == "*":
                parent.any = None
            else:
                del parent.children[segment]

    def match(self, subject: str) -> list[T]:
        """The items of all patterns that match a well-formed subject."""
        found: list[T] = []
        nodes = [self._root]
        for segment in subject[1:].split("/"):
            below: list[_Node[T]] = []
            for node in nodes:
                if node.deep:
                    found += node.deep
                child = node.children.get(segment)
                if child is not None:
                    below.append(child)
                if node.any is not None:
                    below.append(node.any)
            if not below:
                return found
            nodes = below
        for node in nodes:
            found += node.deep
            found += node.ends
        return found
