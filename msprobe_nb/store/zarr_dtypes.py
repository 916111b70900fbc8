"""Low-precision types as Zarr data types, registered under their ``ml_dtypes`` names.

Only the virtual store needs this: packs hold bytes. Works on zarr 3.1 to 3.4, where the classes
used here moved between modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
from zarr.core.dtype.common import DataTypeValidationError, HasItemSize
from zarr.dtype import ZDType, data_type_registry

from msprobe_nb.store.dtypes import _LOW_PRECISION, storage_dtype


@dataclass(frozen=True, kw_only=True)
class LowPrecision(ZDType, HasItemSize):
    """Base of the generated classes; one subclass for each type."""

    native: ClassVar[np.dtype]

    @property
    def item_size(self) -> int:
        """Bytes of an element."""
        return self.native.itemsize

    @classmethod
    def from_native_dtype(cls, dtype: Any) -> Self:
        """The data type of a numpy dtype."""
        if np.dtype(dtype) == cls.native:
            return cls()
        raise DataTypeValidationError(f"{dtype} is not {cls._zarr_v3_name}")

    def to_native_dtype(self) -> Any:
        """The numpy dtype."""
        return self.native

    @classmethod
    def _from_json_v2(cls, data: Any) -> Self:
        raise DataTypeValidationError("there is no Zarr v2 form of this type")

    @classmethod
    def _from_json_v3(cls, data: Any) -> Self:
        if data == cls._zarr_v3_name:
            return cls()
        raise DataTypeValidationError(f"{data!r} is not {cls._zarr_v3_name}")

    def to_json(self, zarr_format: int) -> Any:
        """The name of the type in metadata."""
        return self._zarr_v3_name

    def _check_scalar(self, data: object) -> bool:
        return isinstance(data, (int, float, np.generic))

    def cast_scalar(self, data: object) -> Any:
        """`data` as a scalar of this type."""
        return self.native.type(data)

    def default_scalar(self) -> Any:
        """Zero."""
        return self.native.type(0)

    def to_json_scalar(self, data: object, *, zarr_format: int) -> float:
        """A scalar in metadata."""
        return float(data)  # type: ignore[arg-type]

    def from_json_scalar(self, data: Any, *, zarr_format: int) -> Any:
        """A scalar from metadata."""
        return self.native.type(data)


@cache
def register() -> None:
    """Make the low-precision types known to zarr; safe to call again."""
    for name in _LOW_PRECISION:
        try:
            native = storage_dtype(name)
        except ValueError:
            continue  # this release of ml_dtypes does not have it
        body = {"dtype_cls": type(native), "_zarr_v3_name": name, "native": native}
        body["__annotations__"] = {"native": ClassVar[np.dtype]}
        kind: type[LowPrecision] = dataclass(frozen=True, kw_only=True)(
            type(f"Zarr_{name}", (LowPrecision,), body)
        )
        data_type_registry.register(name, kind)
