"""What chance allows: how far a count may be from its share before nobody believes in chance."""

import bisect
import math

# Of so many good versions, one would be told to be wrong.
LEVEL = 1e-9


def log_bound(count: int, total: int, share: float) -> float:
    """Returns the logarithm of a bound on the chance of a count so far off, to its side.

    For independent draws it is `-total * KL(count / total, share)`, however many they are:
    W. Hoeffding, "Probability inequalities for sums of bounded random variables", Journal of the
    American Statistical Association 58 (1963), theorem 1 (the bound of Chernoff).

    Args:
      count: How many draws fell to a part.
      total: How many there were.
      share: The part's share; from 0 to 1.
    """
    if not total:
        return 0.0
    found = count / total
    divergence = 0.0
    for seen, wanted in ((found, share), (1 - found, 1 - share)):
        if seen > 0:
            divergence += seen * math.log(seen / wanted) if wanted > 0 else math.inf
    return -total * divergence


def allowed(total: int, share: float, level: float = LEVEL) -> tuple[int, int]:
    """Returns the least and the greatest count that chance gives, but for a level.

    Args:
      total: How many draws there were.
      share: The part's share; from 0 to 1.
      level: The chance that a count lies outside is less than this.
    """
    least = math.log(level / 2)  # on each side
    middle = round(total * share)

    def is_too_far(count: int) -> bool:
        return log_bound(count, total, share) < least

    low = bisect.bisect_left(range(middle), True, key=lambda count: not is_too_far(count))
    beyond = bisect.bisect_left(range(middle, total + 1), True, key=is_too_far)
    return low, middle + max(0, beyond - 1)
