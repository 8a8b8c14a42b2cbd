"""Carries pending requests out, one after the other. How a signature is made better it is told; what comes of it, it writes down."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from optimizers.order import CANNOT, CannotBeOptimized, NotDone
from service.adapters.job_lease import Lease
from service.adapters.optimization_jobs import OptimizationJobs
from service.contracts.optimization import OptimizationRequest

if TYPE_CHECKING:
    from optimizers.routing_job import Hearing

log = logging.getLogger(__name__)


def carry_out(
    jobs: OptimizationJobs, lease: Lease, improve: "Callable[[OptimizationRequest], Hearing]", most: int | None
) -> list[OptimizationRequest]:
    """Carry out the requests that wait now, at most so many, and return them as they stand then; each is tried once.

    Raises:
        LeaseLost: somebody else may be at it by now.
    """
    began, ended = jobs.now(), list[OptimizationRequest]()
    while (most is None or len(ended) < most) and (request := jobs.claim(lease, began)) is not None:
        ended.append(_attempt(jobs, lease, request, improve))
    return ended


def _attempt(
    jobs: OptimizationJobs, lease: Lease, request: OptimizationRequest, improve: "Callable[[OptimizationRequest], Hearing]"
) -> OptimizationRequest:
    try:
        heard = improve(request)
    except CannotBeOptimized as exc:
        return jobs.fail(lease, request.request_id, str(exc), for_good=True)
    except (NotDone, *CANNOT) as exc:
        return jobs.fail(lease, request.request_id, str(exc), for_good=False)
    except Exception as exc:  # the edge: one request must not keep the others from their turn
        log.exception("unforeseen_error request=%s", request.request_id)
        said = f"Something went wrong that nobody foresaw ({type(exc).__name__}). The log of the job has it."
        return jobs.fail(lease, request.request_id, said, for_good=False)
    return jobs.finish(lease, request.request_id, heard.version.number, heard.verdict.ruling, heard.verdict.reason)
