"""Bug classes that cannot exist on the CPU: listed with the reason, and not counted."""

from mhc.oracles.mutants.record import GpuOnly

NEEDS_A_GPU = (
    GpuOnly(
        bug="a race between the warps of a block, through shared memory",
        reason="the interpreter and the C program run one thread; the coin and the neighbour's squares stand for its effect",
        source="tilelang #1758: NaN unless a print is added",
    ),
    GpuOnly(
        bug="two shared buffers merged while both are alive",
        reason="a pass of the CUDA target; the C program has no shared memory",
        source="tilelang #2199",
    ),
    GpuOnly(
        bug="WGMMA of a width of 8 mod 16",
        reason="an instruction of sm_90; its effect, the last 8 columns wrong, is among the mutants",
        source="tilelang #2593",
    ),
    GpuOnly(
        bug='"ieee" taken as TF32 after an upcast in the kernel',
        reason="a choice of the compiler for tensor cores; phi cut to ten bits is among the mutants",
        source="triton #10176",
    ),
    GpuOnly(
        bug="a pipelined load that overwrites a tile an asynchronous product still reads",
        reason="asynchronous copies exist on a GPU only",
        source="docstring of mhc/operators/mhc_pre/triton/kernels/fwd_project.py",
    ),
    GpuOnly(
        bug="a fence or a barrier left out between programs that exchange sums",
        reason="the resident forward is sm_90 only and the interpreter runs its programs one after the other",
    ),
    GpuOnly(
        bug="a launch on the wrong device",
        reason="there is one device; launches on a wrong stream are mutants that need a GPU",
    ),
)
