"""Migration operations that have PostgreSQL itself refuse a fence that goes down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.migrations.operations.base import Operation
from fencekit.django import trigger_sql
from fencekit.django.fields import fence_problem

__all__ = ["AddFenceTrigger", "RemoveFenceTrigger"]

# Kept with the model in the migration state, where a name with an underscore is nobody's option:
# so what an operation replaced can be put back.
_OPTION = "_fencekit_trigger"


class _TriggerOperation(Operation):
    """What both operations do: bring a table to what the state says of its trigger."""

    reversible = True
    reduces_to_sql = True

    model: str

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Make the table's trigger what the later state says."""
        del from_state
        self._bring(app_label, schema_editor, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Make the table's trigger what the earlier state says."""
        del from_state
        self._bring(app_label, schema_editor, to_state)

    def references_model(self, name: str, app_label: str) -> bool:
        """Whether a model is the one with the trigger."""
        del app_label
        return name.lower() == self.model.lower()

    def _bring(self, app_label: str, schema_editor: Any, to_state: Any) -> None:
        model = to_state.apps.get_model(app_label, self.model)
        connection = schema_editor.connection
        if connection.vendor != "postgresql":
            return
        if not self.allow_migrate_model(connection.alias, model):
            return
        table = schema_editor.quote_name(model._meta.db_table)  # noqa: SLF001 - documented
        schema_editor.execute(trigger_sql.drop(table), params=None)
        state = _state_of(to_state, app_label, self.model)
        wanted = state.options.get(_OPTION)
        if wanted is None:
            schema_editor.execute(trigger_sql.DROP_FUNCTIONS, params=None)
            return
        column = model._meta.get_field(_name_of(state, wanted)).column  # noqa: SLF001 - documented
        schema_editor.execute(trigger_sql.FUNCTIONS, params=None)
        for statement in trigger_sql.create(
            table, schema_editor.quote_name(column), column, strict=wanted["strict"]
        ):
            schema_editor.execute(statement, params=None)


class AddFenceTrigger(_TriggerOperation):
    """Has PostgreSQL refuse a write that lowers a row's fence, whoever writes.

    ``save()``, ``bulk_update``, the admin and raw SQL alike; the refusal is a `FencedOutError`.
    Writes that leave the fence column out pass. A strict trigger lets such a write pass only inside
    `fenced_atomic`, and with a token that is not below the row's fence. DELETE is not judged.

    Added again, it replaces the one before. On other databases it does nothing.
    """

    def __init__(
        self,
        model: str,
        strict: bool = False,  # noqa: FBT001, FBT002 - the documented signature
        fence_field: str = "fence_token",
    ) -> None:
        """Make the operation.

        Args:
            model: the name of a model of the migration's app.
            strict: also refuse writes that leave the fence column out, unless a token is shown.
            fence_field: the name of the fence.

        Raises:
            TypeError: the model is not a name.
        """
        if not isinstance(model, str):
            raise TypeError("name the model by a str, as in every migration operation")
        self.model = model
        self.strict = strict
        self.fence_field = fence_field

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Keep the trigger with the model.

        Raises:
            LookupError: there is no such model here.
            ValueError: the model has no such fence.
        """
        model = _state_of(state, app_label, self.model)
        field = model.fields.get(self.fence_field)
        if field is None:
            raise ValueError(
                f"AddFenceTrigger: {app_label}.{self.model} has no field {self.fence_field!r} here"
            )
        if field.null or fence_problem(_Standing(field)) is not None:
            raise ValueError(
                f"AddFenceTrigger: {app_label}.{self.model}.{self.fence_field} is no fence: it "
                "must have 64 bits and not be null"
            )
        _keep(model, {"strict": self.strict, "fence_field": self.fence_field, "field": field})
        state.reload_model(app_label, self.model.lower(), delay=True)

    def describe(self) -> str:
        """Say what it does, for `migrate`."""
        kind = "a strict fence trigger" if self.strict else "a fence trigger"
        return f"Add {kind} to {self.model}"

    @property
    def migration_name_fragment(self) -> str:
        """What a migration with it is called."""
        return f"{self.model.lower()}_fence_trigger"


class RemoveFenceTrigger(_TriggerOperation):
    """Takes the trigger away that `AddFenceTrigger` made."""

    def __init__(self, model: str) -> None:
        """Make the operation.

        Args:
            model: the name of a model of the migration's app.
        """
        self.model = model

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Forget the trigger.

        Raises:
            LookupError: there is no such model here.
        """
        _keep(_state_of(state, app_label, self.model), None)
        state.reload_model(app_label, self.model.lower(), delay=True)

    def describe(self) -> str:
        """Say what it does, for `migrate`."""
        return f"Remove the fence trigger of {self.model}"

    @property
    def migration_name_fragment(self) -> str:
        """What a migration with it is called."""
        return f"remove_{self.model.lower()}_fence_trigger"


class _Standing:
    """A field of the migration state, which belongs to no model yet."""

    concrete = True

    def __init__(self, field: Any) -> None:
        self._field = field

    def __getattr__(self, name: str) -> Any:
        return getattr(self._field, name)


def _state_of(state: Any, app_label: str, model: str) -> Any:
    try:
        return state.models[app_label, model.lower()]
    except KeyError:
        raise LookupError(f"there is no model {app_label}.{model} here") from None


def _name_of(model: Any, trigger: Mapping[str, Any]) -> str:
    # RenameField gives the same field another name, and knows nothing of our note.
    for name, field in model.fields.items():
        if field is trigger["field"]:
            return str(name)
    return str(trigger["fence_field"])


def _keep(model: Any, trigger: Mapping[str, Any] | None) -> None:
    # A copy: states share the options of models that did not change.
    options = {name: value for name, value in model.options.items() if name != _OPTION}
    if trigger is not None:
        options[_OPTION] = dict(trigger)
    model.options = options
