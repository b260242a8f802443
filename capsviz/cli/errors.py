"""Errors at the command line: one line each, and an exit status that says whose mistake it is."""

from __future__ import annotations

import contextlib

import click


class RequestError(click.ClickException):
    """A mistake in what was asked for: one line, exit status 2."""

    exit_code = 2


@contextlib.contextmanager
def errors():
    """Library errors as one line: status 2 for what was asked wrongly, 1 for what could not be."""
    try:
        yield
    except (click.exceptions.Exit, click.Abort):  # RuntimeErrors, but no errors
        raise
    except BrokenPipeError:  # the reader of stdout has enough: click ends quietly
        raise
    except ArithmeticError as error:  # before ValueError: some are both
        raise click.ClickException(_line(error)) from error
    except ValueError as error:
        raise RequestError(_line(error)) from error
    except OSError as error:
        raise click.ClickException(_system(error)) from error
    except (MemoryError, ImportError, RuntimeError) as error:
        raise click.ClickException(_line(error)) from error


def _system(error: OSError) -> str:
    if error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return _line(error)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
