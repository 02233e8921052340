"""Exact isomorphism of labelled, typed graphs: colour refinement, then individualisation where colours leave a choice.

A colouring is *equitable* where nodes of one colour have as many neighbours of each colour and type of edge. Colour
refinement (Weisfeiler and Leman, 1968) finds the coarsest such colouring of both graphs at once, here by splitting
classes (Cardon and Crochemore, 1982), O(e log n). Graphs whose classes differ in size are different.

What is left is decided exactly. Edges that join all nodes of one class with all of another hold for every bijection
that keeps the colours, so they are dropped, and the graphs fall into components. Being isomorphic is an equivalence, so
a component may be paired with any other that it is isomorphic to: components are decided one by one. In a component,
one node is given a colour of its own, and each node of its old colour in the other graph is tried as its image (McKay,
1981). On trees the first one always fits.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from grapheme_nn.data.graphs import Graph

# Per node its neighbours, each with a number for the type and the direction of the edge.
Neighbours = Sequence[list[tuple[int, int]]]


def is_isomorphic(one: Graph, other: Graph) -> bool:
    """Whether two graphs are the same but for the numbers of their nodes and the order of their edges.

    Labels, types and directions count; directions do not where both graphs are undirected.
    """
    return isomorphism(one, other) is not None


def is_same(one: str | Graph, other: str | Graph) -> bool:
    """Whether two texts are equal, or two graphs isomorphic."""
    if isinstance(one, Graph) and isinstance(other, Graph):
        return is_isomorphic(one, other)
    return one == other


def isomorphism(one: Graph, other: Graph) -> list[int] | None:
    """For each node of one graph its image under a bijection that keeps labels and edges; None where there is none."""
    size = len(one.nodes)
    if size != len(other.nodes) or len(one.edges) != len(other.edges):
        return None
    if one.nodes == other.nodes and set(one.edges) == set(other.edges):
        return list(range(size))
    if Counter(one.nodes) != Counter(other.nodes):
        return None
    if Counter(kind for _, _, kind in one.edges) != Counter(kind for _, _, kind in other.edges):
        return None
    neighbours, numbers = union(one, other)
    found = _match(list(range(size)), list(range(size, 2 * size)), neighbours, dict(enumerate(numbers)))
    return None if found is None else [found[node] - size for node in range(size)]


def union(one: Graph, other: Graph) -> tuple[Neighbours, list[int]]:
    """Both graphs as one, the nodes of the second after those of the first: neighbours, and a number for each label."""
    directed = one.directed or other.directed
    label_number: dict[str, int] = {}
    type_number: dict[int | str, int] = {}
    labels = [label_number.setdefault(label, len(label_number)) for label in (*one.nodes, *other.nodes)]
    neighbours: list[list[tuple[int, int]]] = [[] for _ in labels]
    for graph, offset in ((one, 0), (other, len(one.nodes))):
        for source, target, kind in graph.edges:
            number = 2 * type_number.setdefault(kind, len(type_number))
            neighbours[offset + source].append((offset + target, number))
            neighbours[offset + target].append((offset + source, number + directed))
    return neighbours, labels


def refine(nodes: Iterable[int], neighbours: Neighbours, colour: dict[int, int]) -> dict[int, int]:
    """The coarsest equitable colouring of these nodes, and the edges between them, that is as fine as `colour`."""
    classes: defaultdict[int, set[int]] = defaultdict(set)
    for node in nodes:
        classes[colour[node]].add(node)
    found = {node: name for name, members in classes.items() for node in members}
    waiting, fresh = list(classes), max(classes, default=0) + 1
    while waiting:
        # What each node sees of this class, and nodes of a class that see the same.
        seen: defaultdict[int, list[int]] = defaultdict(list)
        for node in classes[waiting.pop()]:
            for neighbour, kind in neighbours[node]:
                if neighbour in found:
                    seen[neighbour].append(kind)
        parts: defaultdict[int, defaultdict[tuple[int, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
        for node, kinds in seen.items():
            parts[found[node]][tuple(sorted(kinds))].append(node)
        for name, by_view in parts.items():
            members, groups = classes[name], sorted(by_view.values(), key=len)
            blind = len(members) - sum(map(len, groups))  # nodes that see nothing
            if blind == 0 and len(groups) == 1:
                continue
            # The largest part keeps the name: whether it is waiting or not, the others tell what it would.
            if blind < len(groups[-1]):
                kept = set(groups.pop())
                rest = members.difference(kept, *groups)
                groups += [list(rest)] if rest else []
                classes[name] = kept
            else:
                members.difference_update(*groups)
            for group in groups:
                classes[fresh] = set(group)
                found.update(dict.fromkeys(group, fresh))
                waiting.append(fresh)
                fresh += 1
    return found


def _match(ours: list[int], theirs: list[int], neighbours: Neighbours, colour: dict[int, int]) -> dict[int, int] | None:
    """A bijection between two sets of nodes that keeps colours and the edges inside of them; None without."""
    colour = refine([*ours, *theirs], neighbours, colour)
    if Counter(colour[node] for node in ours) != Counter(colour[node] for node in theirs):
        return None
    waiting: defaultdict[tuple[int, ...], list[list[int]]] = defaultdict(list)
    for component in _components(theirs, neighbours, colour):
        waiting[tuple(sorted(colour[node] for node in component))].append(component)
    found: dict[int, int] = {}
    for component in _components(ours, neighbours, colour):
        alike = waiting[tuple(sorted(colour[node] for node in component))]
        for place in reversed(range(len(alike))):  # from the end, where deleting costs nothing
            images = _match_component(component, alike[place], neighbours, colour)
            if images is not None:
                found |= images
                del alike[place]
                break
        else:
            return None
    return found


def _match_component(
    ours: list[int], theirs: list[int], neighbours: Neighbours, colour: dict[int, int]
) -> dict[int, int] | None:
    if len(ours) == 1:
        return {ours[0]: theirs[0]}
    sizes = Counter(colour[node] for node in ours)
    chosen = min(ours, key=lambda node: sizes[colour[node]])
    own = max(colour[node] for node in ours) + 1
    for image in theirs:
        if colour[image] == colour[chosen]:
            marked = {node: colour[node] for node in (*ours, *theirs)} | {chosen: own, image: own}
            found = _match(ours, theirs, neighbours, marked)
            if found is not None:
                return found
    return None


def _components(nodes: list[int], neighbours: Neighbours, colour: dict[int, int]) -> list[list[int]]:
    """Connected components without the edges that join all nodes of a colour with all of another, or of the same."""
    inside, sizes = set(nodes), Counter(colour[node] for node in nodes)
    edges = [(node, other, kind) for node in nodes for other, kind in neighbours[node] if other in inside]
    bundles = Counter((colour[node], colour[other], kind) for node, other, kind in edges)
    linked: defaultdict[int, list[int]] = defaultdict(list)
    for node, other, kind in edges:
        here, there = colour[node], colour[other]
        if bundles[here, there, kind] < sizes[here] * (sizes[there] - (here == there)):
            linked[node].append(other)
    components, seen = [], set()
    for start in nodes:
        if start not in seen:
            component = [start]
            seen.add(start)
            for node in component:  # grows while we walk it
                for other in linked[node]:
                    if other not in seen:
                        seen.add(other)
                        component.append(other)
            components.append(component)
    return components
