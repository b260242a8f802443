"""Disentanglement and completeness of a code, from the weights of a lasso (Eastwood & Williams)."""

import warnings

import numpy as np

LEAST = 8  # images of a class to fit on
PENALTIES = np.logspace(-3, 0, 16)[::-1]  # of the lasso, targets standardised
FOLDS = 3  # by which the penalty is chosen
STEPS = 2000  # of coordinate descent, at most
LEVEL = 0.05  # of the tests whether a code predicts a factor, all factors together


def dci(codes: np.ndarray, factors: np.ndarray) -> tuple[float, float]:
    """Return disentanglement and completeness of codes (N, E) for factors (N, M), in [0, 1].

    Eastwood & Williams 2018 (openreview By-7dz-AZ), section 2: R_ij is the weight, without its
    sign, of dimension i in a lasso for factor j, all standardised. Disentanglement is 1 less the
    entropy of a row of R, to the base M, completeness 1 less that of a column, to the base E;
    means, each row and column by its share of all weights. A factor that the code does not predict
    (`predicts`) has no weights here: the few that a lasso leaves by chance would be concentrated.
    """
    weights = importance(codes, factors)
    return _concentration(weights), _concentration(weights.T)


def importance(codes: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return R (E, M): weights, without signs, of each standardised dimension for each factor.

    0 for a factor that the lasso does not predict on images left out of its fit.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso

    x, y = standardised(codes), standardised(factors)
    columns = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of the smallest penalties
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
    """Return predictions (P, N, M) by a lasso of each penalty on the other folds; rows of folds.

    As `LassoCV` does, but with one matrix of products for all factors and penalties of a fold.
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
    """Return whether predictions (N,) of values (N,), of mean 0, are better than 0.

    By a one-sided normal test of the squared errors, at `LEVEL` over so many tests (Bonferroni).
    """
    from scipy.stats import norm

    gain = values**2 - (values - predicted) ** 2
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    return bool(gain.mean() > norm.ppf(1 - LEVEL / tests) * error)


def rotated(codes: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return codes (N, E), standardised, then rotated uniformly at random."""
    E = codes.shape[1]
    q, r = np.linalg.qr(generator.normal(size=(E, E)))
    return standardised(codes) @ (q * np.sign(np.diag(r)))


def standardised(values: np.ndarray) -> np.ndarray:
    """Return (N, ...) with mean 0 and standard deviation 1, or 0 where nothing varies."""
    centred = values - values.mean(0)
    deviation = centred.std(0)
    return np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 1e-12)


def _concentration(weights: np.ndarray) -> float:
    """1 less the entropy of each row, to the base of its length; mean by the rows' shares.

    NaN for rows of one number; 0 without any weight.
    """
    rows, whole = weights.sum(1), weights.sum()
    if weights.shape[1] < 2:
        return np.nan
    if whole == 0:
        return 0.0
    p = np.divide(weights, rows[:, None], out=np.zeros_like(weights), where=rows[:, None] > 0)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(1) / np.log(weights.shape[1])
    return float(((1 - entropy) * rows).sum() / whole)
