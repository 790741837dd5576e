"""The messages of `inference.GRPCInferenceService`, as a table of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SERVICE: Final = "inference.GRPCInferenceService"

_NAMED: Final = ("1 name string",)
_VERSIONED: Final = ("1 name string", "2 version string")
_PARAMETERS: Final = "parameters map InferParameter"
_TENSOR: Final = (
    "1 name string",
    "2 datatype string",
    "3 shape repeated int64",
    f"4 {_PARAMETERS}",
    "5 contents InferTensorContents",
)
_LOADING: Final = ("1 repository_name string", "2 model_name string", "3 parameters map ModelRepositoryParameter")
_CONFIGURED: Final = ("1 name string", "2 data_type DataType")

MESSAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "ServerLiveRequest": (),
    "ServerLiveResponse": ("1 live bool",),
    "ServerReadyRequest": (),
    "ServerReadyResponse": ("1 ready bool",),
    "ModelReadyRequest": _VERSIONED,
    "ModelReadyResponse": ("1 ready bool",),
    "ServerMetadataRequest": (),
    "ServerMetadataResponse": ("1 name string", "2 version string", "3 extensions repeated string"),
    "ModelMetadataRequest": _VERSIONED,
    "ModelMetadataResponse.TensorMetadata": ("1 name string", "2 datatype string", "3 shape repeated int64"),
    "ModelMetadataResponse": (
        "1 name string",
        "2 versions repeated string",
        "3 platform string",
        "4 inputs repeated ModelMetadataResponse.TensorMetadata",
        "5 outputs repeated ModelMetadataResponse.TensorMetadata",
    ),
    "InferParameter": (
        "1 bool_param bool parameter_choice",
        "2 int64_param int64 parameter_choice",
        "3 string_param string parameter_choice",
        "4 double_param double parameter_choice",
        "5 uint64_param uint64 parameter_choice",
    ),
    "InferTensorContents": (
        "1 bool_contents repeated bool",
        "2 int_contents repeated int32",
        "3 int64_contents repeated int64",
        "4 uint_contents repeated uint32",
        "5 uint64_contents repeated uint64",
        "6 fp32_contents repeated float",
        "7 fp64_contents repeated double",
        "8 bytes_contents repeated bytes",
    ),
    "ModelInferRequest.InferInputTensor": _TENSOR,
    "ModelInferRequest.InferRequestedOutputTensor": ("1 name string", f"2 {_PARAMETERS}"),
    "ModelInferRequest": (
        "1 model_name string",
        "2 model_version string",
        "3 id string",
        f"4 {_PARAMETERS}",
        "5 inputs repeated ModelInferRequest.InferInputTensor",
        "6 outputs repeated ModelInferRequest.InferRequestedOutputTensor",
        "7 raw_input_contents repeated bytes",
    ),
    "ModelInferResponse.InferOutputTensor": _TENSOR,
    "ModelInferResponse": (
        "1 model_name string",
        "2 model_version string",
        "3 id string",
        f"4 {_PARAMETERS}",
        "5 outputs repeated ModelInferResponse.InferOutputTensor",
        "6 raw_output_contents repeated bytes",
    ),
    "ModelStreamInferResponse": ("1 error_message string", "2 infer_response ModelInferResponse"),
    "ModelConfigRequest": _VERSIONED,
    "ModelConfigResponse": ("1 config ModelConfig",),
    # Triton's configuration has more fields; those that mean nothing here are not sent.
    "ModelInput": (*_CONFIGURED, "4 dims repeated int64"),
    "ModelOutput": (*_CONFIGURED, "3 dims repeated int64"),
    "ModelConfig": (
        "1 name string",
        "2 platform string",
        "17 backend string",
        "4 max_batch_size int32",
        "5 input repeated ModelInput",
        "6 output repeated ModelOutput",
    ),
    "ModelStatisticsRequest": _VERSIONED,
    "StatisticDuration": ("1 count uint64", "2 ns uint64"),
    "InferStatistics": (
        "1 success StatisticDuration",
        "2 fail StatisticDuration",
        "3 queue StatisticDuration",
        "4 compute_input StatisticDuration",
        "5 compute_infer StatisticDuration",
        "6 compute_output StatisticDuration",
        "7 cache_hit StatisticDuration",
        "8 cache_miss StatisticDuration",
    ),
    "InferBatchStatistics": (
        "1 batch_size uint64",
        "2 compute_input StatisticDuration",
        "3 compute_infer StatisticDuration",
        "4 compute_output StatisticDuration",
    ),
    "MemoryUsage": ("1 type string", "2 id int64", "3 byte_size uint64"),
    "ModelStatistics": (
        "1 name string",
        "2 version string",
        "3 last_inference uint64",
        "4 inference_count uint64",
        "5 execution_count uint64",
        "6 inference_stats InferStatistics",
        "7 batch_stats repeated InferBatchStatistics",
        "8 memory_usage repeated MemoryUsage",
    ),
    "ModelStatisticsResponse": ("1 model_stats repeated ModelStatistics",),
    "ModelRepositoryParameter": (
        "1 bool_param bool parameter_choice",
        "2 int64_param int64 parameter_choice",
        "3 string_param string parameter_choice",
        "4 bytes_param bytes parameter_choice",
    ),
    "RepositoryIndexRequest": ("1 repository_name string", "2 ready bool"),
    "RepositoryIndexResponse.ModelIndex": (*_VERSIONED, "3 state string", "4 reason string"),
    "RepositoryIndexResponse": ("1 models repeated RepositoryIndexResponse.ModelIndex",),
    "RepositoryModelLoadRequest": _LOADING,
    "RepositoryModelLoadResponse": (),
    "RepositoryModelUnloadRequest": _LOADING,
    "RepositoryModelUnloadResponse": (),
    "SystemSharedMemoryStatusRequest": _NAMED,
    "SystemSharedMemoryStatusResponse.RegionStatus": (
        "1 name string",
        "2 key string",
        "3 offset uint64",
        "4 byte_size uint64",
    ),
    "SystemSharedMemoryStatusResponse": ("1 regions map SystemSharedMemoryStatusResponse.RegionStatus",),
    "SystemSharedMemoryRegisterRequest": ("1 name string", "2 key string", "3 offset uint64", "4 byte_size uint64"),
    "SystemSharedMemoryRegisterResponse": (),
    "SystemSharedMemoryUnregisterRequest": _NAMED,
    "SystemSharedMemoryUnregisterResponse": (),
    "CudaSharedMemoryStatusRequest": _NAMED,
    "CudaSharedMemoryStatusResponse.RegionStatus": ("1 name string", "2 device_id uint64", "3 byte_size uint64"),
    "CudaSharedMemoryStatusResponse": ("1 regions map CudaSharedMemoryStatusResponse.RegionStatus",),
    "CudaSharedMemoryRegisterRequest": (
        "1 name string",
        "2 raw_handle bytes",
        "3 device_id int64",
        "4 byte_size uint64",
    ),
    "CudaSharedMemoryRegisterResponse": (),
    "CudaSharedMemoryUnregisterRequest": _NAMED,
    "CudaSharedMemoryUnregisterResponse": (),
    "TraceSettingRequest.SettingValue": ("1 value repeated string",),
    "TraceSettingRequest": ("1 settings map TraceSettingRequest.SettingValue", "2 model_name string"),
    "TraceSettingResponse.SettingValue": ("1 value repeated string",),
    "TraceSettingResponse": ("1 settings map TraceSettingResponse.SettingValue",),
    "LogSettingsRequest.SettingValue": (
        "1 bool_param bool parameter_choice",
        "2 uint32_param uint32 parameter_choice",
        "3 string_param string parameter_choice",
    ),
    "LogSettingsRequest": ("1 settings map LogSettingsRequest.SettingValue",),
    "LogSettingsResponse.SettingValue": (
        "1 bool_param bool parameter_choice",
        "2 uint32_param uint32 parameter_choice",
        "3 string_param string parameter_choice",
    ),
    "LogSettingsResponse": ("1 settings map LogSettingsResponse.SettingValue",),
}
"""Fields by message: NUMBER NAME TYPE, with `repeated` or `map` (of strings to it) before the type, and behind it the
oneof that the field belongs to."""

ENUMS: Final[Mapping[str, tuple[str, ...]]] = {
    "DataType": (
        "TYPE_INVALID",
        "TYPE_BOOL",
        "TYPE_UINT8",
        "TYPE_UINT16",
        "TYPE_UINT32",
        "TYPE_UINT64",
        "TYPE_INT8",
        "TYPE_INT16",
        "TYPE_INT32",
        "TYPE_INT64",
        "TYPE_FP16",
        "TYPE_FP32",
        "TYPE_FP64",
        "TYPE_STRING",
        "TYPE_BF16",
    ),
}
"""Names by enumeration, numbered from 0."""

METHODS: Final = (
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelInfer",
    "ModelStreamInfer",
    "ModelConfig",
    "ModelStatistics",
    "RepositoryIndex",
    "RepositoryModelLoad",
    "RepositoryModelUnload",
    "SystemSharedMemoryStatus",
    "SystemSharedMemoryRegister",
    "SystemSharedMemoryUnregister",
    "CudaSharedMemoryStatus",
    "CudaSharedMemoryRegister",
    "CudaSharedMemoryUnregister",
    "TraceSetting",
    "LogSettings",
)
"""Of the service; each takes METHODRequest and returns METHODResponse, but for ModelStreamInfer, a stream of
ModelInferRequest to one of ModelStreamInferResponse."""
