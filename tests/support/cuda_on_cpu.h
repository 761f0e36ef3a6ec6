// What TileLang's CUDA source without tensor cores and TMA needs to run on the CPU: a block's threads are fibers that take
// turns, each up to the next barrier or shuffle.
//
// Two choices that a GPU makes anew each time are fixed by `cuda_on_cpu`, so that a result that depends on them shows: in which
// order the threads go, and whether an asynchronous copy is made as soon or as late as it may be. Shared memory begins as NaN,
// and so do a thread's arrays: what nobody wrote is not 0 on a GPU either.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <vector>

#define __global__ static
#define __launch_bounds__(...)
#define __align__(n)
#define TILELANG_CHECK_LAST_ERROR(name)                                                                                    \
  do {                                                                                                                     \
    if (cpu.failed) {                                                                                                      \
      snprintf(error_buf, ERROR_BUF_SIZE, name ": %s", cpu.said);                                                          \
      cpu.failed = false;                                                                                                  \
      return -1;                                                                                                           \
    }                                                                                                                      \
  } while (0)
#define ERROR_BUF_SIZE 1024

typedef unsigned char uchar;
typedef unsigned int uint;
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct uint2 { uint x, y; };
struct uint4 { uint x, y, z, w; };
#define CUDART_INF_F INFINITY
typedef _Float16 half_t;
struct bfloat16_t {
  uint16_t bits;
  bfloat16_t() = default;
  explicit bfloat16_t(float value) {
    uint whole;
    memcpy(&whole, &value, 4);
    bits = std::isnan(value) ? 0x7FC0 : (whole + 0x7FFF + (whole >> 16 & 1)) >> 16;
  }
  explicit operator float() const {
    uint whole = (uint)bits << 16;
    float value;
    memcpy(&value, &whole, 4);
    return value;
  }
};
struct dim3 {
  int64_t x, y, z;
  dim3(int64_t x = 1, int64_t y = 1, int64_t z = 1) : x(x), y(y), z(z) {}
};
using std::max;
using std::min;

typedef int cudaError_t;
typedef void *cudaStream_t;
enum { cudaSuccess, cudaFuncAttributeMaxDynamicSharedMemorySize, cudaLaunchAttributeProgrammaticStreamSerialization };
#define cudaStreamDefault nullptr
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
template <class F> static int cudaFuncSetAttribute(F, int, int) { return cudaSuccess; }
static const char *cudaGetErrorString(int) { return "no error"; }

struct Copy {
  void *to;
  const void *from; // nullptr: zeros
  int bytes, group;
};

enum State { RUNS, AT_BARRIER, AT_SHUFFLE, DONE };

struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  State state;
  float given, taken;
  int partner, groups;
  std::vector<Copy> copies;
};

static struct Cpu {
  bool reversed = false, late = false, failed = false;
  char said[256] = "";
  dim3 thread, block;
  ucontext_t scheduler;
  std::vector<Fiber> fibers;
  int current;
  std::function<void()> body;
  std::vector<char> shared;
} cpu;
#define threadIdx cpu.thread
#define blockIdx cpu.block
#define SHARED_MEMORY cpu.shared.data()

static void fail(const char *why) {
  snprintf(cpu.said, sizeof cpu.said, "block %lld, thread %d: %s", (long long)cpu.block.x, cpu.current, why);
  cpu.failed = true;
}

static void made(Fiber &fiber, int pending) {
  std::vector<Copy> rest;
  for (const Copy &one : fiber.copies) {
    if (one.group >= fiber.groups - pending) {
      rest.push_back(one);
      continue;
    }
    if (one.from)
      memcpy(one.to, one.from, one.bytes);
    else
      memset(one.to, 0, one.bytes);
  }
  fiber.copies = rest;
}

static void yield(State state) {
  Fiber &fiber = cpu.fibers[cpu.current];
  fiber.state = state;
  swapcontext(&fiber.context, &cpu.scheduler);
}

static void __syncthreads() { yield(AT_BARRIER); }

// An int comes whole through a float below 2**24.
template <class T> static T __shfl_xor_sync(int64_t, T value, int mask) {
  Fiber &fiber = cpu.fibers[cpu.current];
  fiber.given = (float)value;
  fiber.partner = cpu.current ^ mask;
  yield(AT_SHUFFLE);
  return (T)cpu.fibers[cpu.current].taken;
}

namespace tl {
template <int BYTES> static void cp_async_gs_conditional(void *to, const void *from, bool there) {
  if ((uintptr_t)to % BYTES || (there && (uintptr_t)from % BYTES))
    fail("a copy that is not aligned");
  Fiber &fiber = cpu.fibers[cpu.current];
  fiber.copies.push_back({to, there ? from : nullptr, BYTES, fiber.groups});
  if (!cpu.late)
    made(fiber, -1);
}
template <int BYTES> static void cp_async_gs(void *to, const void *from) { cp_async_gs_conditional<BYTES>(to, from, true); }
static void cp_async_commit() { cpu.fibers[cpu.current].groups++; }
template <int PENDING> static void cp_async_wait() { made(cpu.fibers[cpu.current], PENDING == 0 ? -1 : PENDING); }
static void store_global_128(void *to, uint4 value) {
  if ((uintptr_t)to % 16)
    fail("a store that is not aligned");
  memcpy(to, &value, 16);
}
} // namespace tl

static float rsqrtf(float value) { return 1.0f / sqrtf(value); }
static void cudaTriggerProgrammaticLaunchCompletion() {}
static void cudaGridDependencySynchronize() {}

static void enter() {
  cpu.body();
  cpu.fibers[cpu.current].state = DONE;
  swapcontext(&cpu.fibers[cpu.current].context, &cpu.scheduler);
}

// Shuffles that all lanes of a warp have come to.
static bool exchanged(int count) {
  bool any = false;
  for (int warp = 0; warp < count; warp += 32) {
    int there = 0, alive = 0, last = min(warp + 32, count);
    for (int i = warp; i < last; ++i) {
      there += cpu.fibers[i].state == AT_SHUFFLE;
      alive += cpu.fibers[i].state != DONE;
    }
    if (there == 0 || there < alive)
      continue;
    for (int i = warp; i < last; ++i)
      cpu.fibers[i].taken = cpu.fibers[cpu.fibers[i].partner].given;
    for (int i = warp; i < last; ++i)
      cpu.fibers[i].state = RUNS;
    any = true;
  }
  return any;
}

static void run_block(int count) {
  for (int i = 0; i < count; ++i) {
    Fiber &fiber = cpu.fibers[i];
    getcontext(&fiber.context);
    fiber.stack.resize(64 << 10);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = nullptr;
    fiber.state = RUNS;
    fiber.groups = 0;
    fiber.copies.clear();
    makecontext(&fiber.context, enter, 0);
  }
  while (!cpu.failed) {
    for (int k = 0; k < count; ++k) {
      int i = cpu.reversed ? count - 1 - k : k;
      if (cpu.fibers[i].state != RUNS)
        continue;
      cpu.current = i;
      cpu.thread.x = i;
      swapcontext(&cpu.scheduler, &cpu.fibers[i].context);
    }
    if (exchanged(count))
      continue;
    int waiting = 0, done = 0;
    for (int i = 0; i < count; ++i) {
      waiting += cpu.fibers[i].state == AT_BARRIER;
      done += cpu.fibers[i].state == DONE;
    }
    if (done == count)
      return;
    if (waiting < count)
      return fail("the others wait for it at a barrier or a shuffle");
    for (int i = 0; i < count; ++i)
      cpu.fibers[i].state = RUNS;
  }
}

template <class... P, class... A>
static int launch_plainly(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t, A... given) {
  cpu.fibers.resize(block.x);
  cpu.body = [=] { kernel(given...); };
  for (int64_t z = 0; z < grid.z; ++z)
    for (int64_t y = 0; y < grid.y; ++y)
      for (int64_t x = 0; x < grid.x && !cpu.failed; ++x) {
        cpu.block = dim3(x, y, z);
        cpu.shared.assign(shared + 16, (char)0xFF);
        run_block((int)block.x);
      }
  return cpu.failed;
}

template <class... P, class... A>
static int cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A... given) {
  return launch_plainly(kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream, given...);
}

extern "C" void cuda_on_cpu(int reversed, int late) {
  cpu.reversed = reversed;
  cpu.late = late;
}
