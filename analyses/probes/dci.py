"""Disentanglement and completeness of a code, from lasso weights (Eastwood & Williams)."""

import warnings

import numpy as np

LEAST = 8  # images of a class to fit on, at least
PENALTIES = np.logspace(-3, 0, 16)[::-1]  # of the lasso, for standardised targets
FOLDS = 3  # of the cross-validation that chooses the penalty
STEPS = 2000  # of coordinate descent, at most
LEVEL = 0.05  # significance level of `predicts`, for all factors together


def dci(codes: np.ndarray, factors: np.ndarray) -> tuple[float, float]:
    """Return disentanglement and completeness of codes (N, E) for factors (N, M), in [0, 1].

    Eastwood & Williams 2018 (openreview By-7dz-AZ), section 2. R_ij is the absolute weight of
    dimension i in a lasso for factor j, all standardised. Disentanglement is 1 minus the entropy of
    a row of R, to the base M; completeness is 1 minus that of a column, to the base E. Both are
    means over rows or columns, weighted by their shares of all weights. Unlike in the paper, a
    factor that the code does not predict (`predicts`) has no weights: the few weights that a lasso
    leaves by chance would be concentrated.
    """
    weights = importance(codes, factors)
    return _concentration(weights), _concentration(weights.T)


def importance(codes: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return R (E, M): the absolute weight of each standardised dimension for each factor.

    Weights are 0 for a factor that the lasso does not predict on held-out images.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso

    x, y = standardised(codes), standardised(factors)
    columns = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # from the smallest penalties
        predicted, folds = held_out(x, y)
        errors = [((predicted[:, test] - y[test]) ** 2).mean(1) for test in folds]
        best = np.mean(errors, 0).argmin(0)
        for j, k in enumerate(best):
            lasso = Lasso(PENALTIES[k], max_iter=STEPS).fit(x, y[:, j])
            weights = np.abs(lasso.coef_)
            known = weights.any() and predicts(y[:, j], predicted[k, :, j], len(best))
            columns.append(weights * known)
    return np.stack(columns, 1)


def held_out(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return held-out predictions (P, N, M) for each of P penalties, and the rows of each fold.

    This is the cross-validation of `LassoCV`, with one Gram matrix for all factors and penalties of
    a fold.
    """
    from sklearn.linear_model import lasso_path
    from sklearn.model_selection import KFold

    predicted, folds = np.zeros((len(PENALTIES), *y.shape)), []
    for fit, test in KFold(FOLDS).split(x):
        centre, middle = x[fit].mean(0), y[fit].mean(0)
        inputs = np.asfortranarray(x[fit] - centre)
        products = inputs.T @ inputs
        for j, target in enumerate((y[fit] - middle).T):
            _, weights, _ = lasso_path(
                inputs, target, alphas=PENALTIES, precompute=products, Xy=inputs.T @ target,
                max_iter=STEPS, check_input=False,
            )  # fmt: skip
            predicted[:, test, j] = ((x[test] - centre) @ weights).T + middle[j]
        folds.append(test)
    return predicted, folds


def predicts(values: np.ndarray, predicted: np.ndarray, tests: int) -> bool:
    """Return whether predictions (N,) of centred values (N,) are better than predicting 0.

    A one-sided normal test compares squared errors, at `LEVEL` / `tests` (Bonferroni).
    """
    from scipy.stats import norm

    gain = values**2 - (values - predicted) ** 2
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    return bool(gain.mean() > norm.ppf(1 - LEVEL / tests) * error)


def rotated(codes: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return codes (N, E), standardised and then rotated uniformly at random."""
    E = codes.shape[1]
    q, r = np.linalg.qr(generator.normal(size=(E, E)))
    return standardised(codes) @ (q * np.sign(np.diag(r)))


def standardised(values: np.ndarray) -> np.ndarray:
    """Return values (N, ...) with mean 0 and standard deviation 1; constant columns become 0."""
    centred = values - values.mean(0)
    deviation = centred.std(0)
    return np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 1e-12)


def _concentration(weights: np.ndarray) -> float:
    """Return 1 minus the entropy of rows, to the base of their length, weighted by row sums.

    The result is NaN for rows of one number, and 0 if all weights are 0.
    """
    rows, whole = weights.sum(1), weights.sum()
    if weights.shape[1] < 2:
        return np.nan
    if whole == 0:
        return 0.0
    p = np.divide(weights, rows[:, None], out=np.zeros_like(weights), where=rows[:, None] > 0)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(1) / np.log(weights.shape[1])
    return float(((1 - entropy) * rows).sum() / whole)
