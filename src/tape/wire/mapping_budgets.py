"""Budgets."""

from operator import attrgetter

from tape.model.budget import Budget, ChargeBudget, SetBudget
from tape.wire.v1 import tape_pb2 as pb

_budget_fields = attrgetter(*Budget._fields)
_charge_fields = attrgetter(*ChargeBudget._fields)


def budget_to_wire(budget: Budget) -> pb.BudgetState:
    return pb.BudgetState(**budget._asdict())


def budget_from_wire(message: pb.BudgetState) -> Budget:
    return Budget._make(_budget_fields(message))


def set_to_wire(write: SetBudget) -> pb.SetBudgetRequest:
    return pb.SetBudgetRequest(**write._asdict())


def set_from_wire(request: pb.SetBudgetRequest) -> SetBudget:
    return SetBudget(request.usd_cap, request.token_cap)


def charge_to_wire(write: ChargeBudget) -> pb.ChargeBudgetRequest:
    return pb.ChargeBudgetRequest(**write._asdict())


def charge_from_wire(request: pb.ChargeBudgetRequest) -> ChargeBudget:
    return ChargeBudget._make(_charge_fields(request))
