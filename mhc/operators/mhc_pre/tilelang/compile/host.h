// The part of CUDA's runtime API that TileLang's host code calls, over the driver API.
//
// The runtime that nvcc links into a library costs a fresh process tenths of a second, and a source that holds kernels and
// host code passes through the C++ front end three times. So kernels are cubins by themselves, and this is the rest.
// load() takes the cubins for all devices, once; init() prepares the kernels for the current one.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cuda.h>
#include <sstream>
#include <string>

typedef CUresult cudaError_t;
typedef CUstream cudaStream_t;
#define cudaSuccess CUDA_SUCCESS
#define cudaStreamDefault nullptr
#define CUTLASS_CUDA_DRIVER_WRAPPER_CALL(function) function
#define __global__ static
#define __grid_constant__

struct bfloat16_t;
struct half_t;

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

enum { cudaLaunchAttributeCooperative = CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
       cudaLaunchAttributeProgrammaticStreamSerialization = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION };
enum { cudaFuncAttributeMaxDynamicSharedMemorySize = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES };

struct cudaLaunchAttribute {
  int id;
  struct { int programmaticStreamSerializationAllowed; } val;
};

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute *attrs;
  unsigned numAttrs;
};

// A kernel, found by the address of the function that stands for it in the host code.
struct Kernel {
  void *stub;
  const char *name;
  int cubin;
  CUkernel kernel;
};
extern Kernel kernels[];
extern const int kernels_count;

static thread_local CUresult last_error = CUDA_SUCCESS;

static CUresult noted(CUresult result) {
  if (result != CUDA_SUCCESS)
    last_error = result;
  return result;
}

static CUresult cudaGetLastError() {
  CUresult result = last_error;
  last_error = CUDA_SUCCESS;
  return result;
}

static const char *cudaGetErrorString(CUresult result) {
  const char *text = nullptr;
  cuGetErrorString(result, &text);
  return text ? text : "unknown error";
}

static const char *cudaGetErrorName(CUresult result) {
  const char *text = nullptr;
  cuGetErrorName(result, &text);
  return text ? text : "unknown error";
}

static CUkernel kernel_of(void *stub) {
  for (int i = 0; i < kernels_count; ++i)
    if (kernels[i].stub == stub)
      return kernels[i].kernel;
  return nullptr;
}

// The kernels of PREFIX.0.cubin, PREFIX.1.cubin, ... and so on. They stay loaded.
static CUresult load_kernels(const char *prefix) {
  CUlibrary library = nullptr;
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; i < kernels_count && result == CUDA_SUCCESS; ++i) {
    if (kernels[i].kernel)
      continue;
    if (i == 0 || kernels[i].cubin != kernels[i - 1].cubin) {
      std::string path = std::string(prefix) + "." + std::to_string(kernels[i].cubin) + ".cubin";
      result = cuLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    }
    if (result == CUDA_SUCCESS)
      result = cuLibraryGetKernel(&kernels[i].kernel, library, kernels[i].name);
  }
  return result;
}

// A thread that has used no CUDA yet has no context; the runtime would take the first device's, its default.
static bool has_context() {
  CUcontext context = nullptr;
  if (noted(cuCtxGetCurrent(&context)) != CUDA_SUCCESS)
    return false;
  if (context)
    return true;
  CUdevice device;
  return noted(cuDeviceGet(&device, 0)) == CUDA_SUCCESS && noted(cuDevicePrimaryCtxRetain(&context, device)) == CUDA_SUCCESS &&
         noted(cuCtxSetCurrent(context)) == CUDA_SUCCESS;
}

template <class... P> static CUresult cudaFuncSetAttribute(void (*stub)(P...), int attribute, int value) {
  CUdevice device;
  CUresult result = cuCtxGetDevice(&device);
  if (result == CUDA_SUCCESS)
    result = cuKernelSetAttribute((CUfunction_attribute)attribute, value, kernel_of((void *)stub), device);
  return noted(result);
}

static CUresult launch(const cudaLaunchConfig_t &config, void *stub, void **arguments) {
  CUlaunchAttribute attributes[1];
  memset(attributes, 0, sizeof attributes);
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    attributes[i].id = (CUlaunchAttributeID)config.attrs[i].id;
    if (config.attrs[i].id == cudaLaunchAttributeCooperative)
      attributes[i].value.cooperative = 1;
    else
      attributes[i].value.programmaticStreamSerializationAllowed = config.attrs[i].val.programmaticStreamSerializationAllowed;
  }
  CUlaunchConfig given = {config.gridDim.x, config.gridDim.y, config.gridDim.z, config.blockDim.x, config.blockDim.y,
                          config.blockDim.z, (unsigned)config.dynamicSmemBytes, config.stream, attributes, config.numAttrs};
  return noted(cuLaunchKernelEx(&given, (CUfunction)kernel_of(stub), arguments, nullptr));
}

// Each argument becomes the parameter's type first, as in a call.
template <class... P, class... A>
static CUresult cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*stub)(P...), A... given) {
  auto call = [&](P... parameters) {
    void *arguments[] = {(void *)&parameters...};
    return launch(*config, (void *)stub, arguments);
  };
  return call(given...);
}

template <class... P, class... A>
static CUresult launch_plainly(void (*stub)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream, A... given) {
  cudaLaunchConfig_t config = {grid, block, shared, stream, nullptr, 0};
  return cudaLaunchKernelEx(&config, stub, given...);
}

static CUresult cudaLaunchCooperativeKernel(void *stub, dim3 grid, dim3 block, void **arguments, size_t shared,
                                            cudaStream_t stream) {
  cudaLaunchAttribute cooperative = {cudaLaunchAttributeCooperative, {0}};
  cudaLaunchConfig_t config = {grid, block, shared, stream, &cooperative, 1};
  return launch(config, stub, arguments);
}

#define TILELANG_CHECK(call)                                                                                               \
  do {                                                                                                                     \
    CUresult error_ = (call);                                                                                              \
    if (error_ != CUDA_SUCCESS) {                                                                                          \
      snprintf(error_buf, ERROR_BUF_SIZE, "%s - %s", cudaGetErrorName(error_), cudaGetErrorString(error_));                \
      return -1;                                                                                                           \
    }                                                                                                                      \
  } while (0)
#define TILELANG_CHECK_LAST_ERROR(kernel_name)                                                                             \
  do {                                                                                                                     \
    CUresult error_ = cudaGetLastError();                                                                                  \
    if (error_ != CUDA_SUCCESS) {                                                                                          \
      snprintf(error_buf, ERROR_BUF_SIZE, kernel_name ": %s - %s", cudaGetErrorName(error_), cudaGetErrorString(error_)); \
      return -1;                                                                                                           \
    }                                                                                                                      \
  } while (0)
