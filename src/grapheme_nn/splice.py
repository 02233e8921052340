"""New inputs out of old ones: the beginning of one is joined to the end of another where both look the same."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from random import Random

from grapheme_nn.data import Pair
from grapheme_nn.graph import Unit, join_units, units_of

LONGEST_CONTEXT = 2  # characters before the joint that both have in common; where no other has those, one
TRIES = 50  # for each new input that is wished
DRAWN = 4  # joints, to find one in another input


def splice(
    pairs: Sequence[Pair], count: int, *, seed: int, unit: Unit = "codepoint", known: Iterable[Pair] = ()
) -> list[Pair]:
    """At most `count` inputs, as pairs whose target is empty, none of them an input of `pairs` or of `known`.

    Of `walking` and `talked` become `walked` and `talking`, for both have `lk` before the joint. Both have the same
    features, which those of the new input are. The unit `symbol` joins symbols, all others join characters. The same
    seed gives the same inputs; they are fewer than `count` where there are not many to be found.
    """
    unit = unit if unit == "symbol" else "codepoint"
    random = Random(seed)
    words = [(units_of(str(pair.input), unit), pair.features) for pair in pairs]
    seen = {(pair.input, pair.features) for pair in (*pairs, *known)}
    # By features and context: the words that have it, and where it ends in them, before their last character at most.
    joints: defaultdict[tuple[tuple[str, ...], tuple[str, ...]], list[tuple[int, int]]] = defaultdict(list)
    for number, (units, features) in enumerate(words):
        for size in range(1, LONGEST_CONTEXT + 1):
            for at in range(size, len(units)):
                joints[features, tuple(units[at - size : at])].append((number, at))
    long = [number for number, (units, _) in enumerate(words) if len(units) > 1]
    made: list[Pair] = []
    for _ in range(TRIES * count if long else 0):
        if len(made) == count:
            break
        number = random.choice(long)
        units, features = words[number]
        at = random.randrange(1, len(units))
        for size in range(min(LONGEST_CONTEXT, at), 0, -1):
            drawn = random.choices(joints[features, tuple(units[at - size : at])], k=DRAWN)
            other, place = next((joint for joint in drawn if joint[0] != number), (number, at))
            if other != number:
                new = Pair(join_units([*units[:at], *words[other][0][place:]], unit), "", features)
                if (new.input, features) not in seen:
                    seen.add((new.input, features))
                    made.append(new)
                break
    return made
