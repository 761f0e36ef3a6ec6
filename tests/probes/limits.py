"""Probes of what else 0.1.8 lacks or gets wrong, as far as a machine without a GPU shows it."""

from .outcomes import Dies, Probe, Raises, Returns

INTERNAL = "tvm.error.InternalError"

LIMITS = (
    Probe(
        "simplifier",
        "NaN and infinity disappear from an expression",
        "yes",
        "TVM",
        "The simplifier takes floats for real numbers. Inside one expression x - x becomes 0, x * 0 becomes 0, x != x "
        "becomes false, and (x + c) - c becomes x, on every target. Classes and error-free splits are lost without a word.",
        "a name or a buffer for each step; `T.isnan` of a load; the bits",
        {
            "in_one_expression": Returns(
                "{'x - x': [0.0, 0.0, 0.0, 0.0], 'x * 0': [0.0, 0.0, 0.0, 0.0], 'x != x': [0.0, 0.0, 0.0, 0.0], "
                "'x + c - c': [1.0, inf, -inf, nan]}"
            ),
            "x_minus_x_for_cuda": Returns(),
            "instead_a_step_at_a_time": Returns(
                "{'x - x by a buffer': [0.0, nan, nan, nan], 'finite by bits': [1.0, 0.0, 0.0, 0.0], "
                "'isnan': [0.0, 0.0, 0.0, 1.0], 'x + c - c by a name': [0.0, inf, -inf, nan]}"
            ),
        },
    ),
    Probe(
        "var_init",
        "the initial value of `T.alloc_var` is lost",
        "yes",
        "TileLang",
        "On c it is dropped: the variable begins as whatever was there. On CUDA it is set once at the kernel's start, not "
        "in each turn of the loop that declares it.",
        "assign it: `total = 0.0`",
        {
            "is_it_there_on_c": Returns("(True, False)"),
            "in_a_loop_for_cuda": Returns(
                "['float total = 0x0p+0f/*0.000000e+00*/;', 'for (int row = 0; row < 4; ++row) {', "
                "'for (int i = 0; i < 4; ++i) {']"
            ),
            "instead_assign_it": Returns("[6.0, 22.0, 38.0, 54.0]"),
        },
    ),
    Probe(
        "tvm_ffi_pin",
        "`pip install tilelang==0.1.8` alone does not import",
        "yes",
        "the installation",
        "The wheel accepts every apache-tvm-ffi 0.1.x from 0.1.2. Later ones register types that TVM registers again.",
        "pin `apache-tvm-ffi==0.1.9` beside it, as pyproject.toml does",
        {
            "does_the_wheel_allow_a_version_that_breaks_it": Returns(
                "{'0.1.9': True, '0.1.12': True, '0.1.15.post2': True}"
            ),
            "instead_pinned": Returns("('0.1.8', '0.1.9')"),
        },
    ),
    Probe(
        "default_target",
        "no target, or `cuda` without an architecture, kills the process",
        "yes",
        "TileLang",
        "The architecture is asked of CUDA's runtime, through a stub that aborts where PyTorch brings none.",
        "name the architecture: `cuda -arch=sm_90`",
        {
            "cuda_without_an_architecture": Dies("SIGABRT", "TileLang Error: libcudart symbols not found globally."),
            "instead_the_architecture": Returns(),
        },
    ),
    Probe(
        "kernel_of_the_other_kind",
        "one kernel does not serve both c and CUDA",
        "yes",
        "TileLang",
        "`is_cpu=True` decides it when the kernel is written: c takes no threads, CUDA no kernel without them.",
        "the body as a `T.macro`, used by two kernels",
        {
            "for_threads_on_c": Raises(INTERNAL, "not implemented"),
            "for_the_cpu_on_cuda": Raises("RuntimeError", "Did you forget to bind?"),
            "instead_a_macro_for_the_body": Returns("(True, True)"),
        },
    ),
    Probe(
        "c_bfloat16",
        "c has no bfloat16",
        "yes",
        "TVM",
        "The C code generator knows no type for it.",
        "take its bits as uint16 and shift them into a float32",
        {
            "as_it_stands": Raises(INTERNAL, "Cannot convert type bfloat16 to C type"),
            "instead_its_bits": Returns(),
        },
    ),
    Probe(
        "c_fragment",
        "c has no fragments, no `T.Parallel`, no reductions",
        "yes",
        "TileLang",
        "A fragment is spread over the threads of a block, and a kernel for c has none.",
        "`T.alloc_local` and a serial loop",
        {
            "a_fragment": Raises(INTERNAL, "variables [v_thread] are used, but are not passed in as API arguments"),
            "a_parallel_loop": Raises(INTERNAL, "variables [v_thread] are used, but are not passed in as API arguments"),
            "a_reduction_of_a_local_buffer": Raises("ValueError", "Invalid buffer scopes: local and local"),
            "instead_a_local_buffer_and_a_loop": Returns("6.0"),
        },
    ),
    Probe(
        "c_gemm",
        "c has no `T.gemm`",
        "yes",
        "TileLang",
        "It is lowered for GPUs only.",
        "three loops",
        {
            "as_it_stands": Raises(INTERNAL, "Unsupported target for gemm: c -keys=cpu"),
            "instead_three_loops": Returns(),
        },
    ),
    Probe(
        "c_atomics",
        "c has no atomics",
        "yes",
        "TileLang",
        "They are lowered for GPUs only. Blocks are a serial loop on c, so a plain sum is safe there.",
        "a plain sum",
        {
            "as_it_stands": Raises(INTERNAL, "Unresolved call Op(tl.atomic_add_elem_op)"),
            "instead_a_sum_in_order": Returns("6.0"),
        },
    ),
    Probe(
        "c_isfinite",
        "c has no `T.isfinite`, `T.isinf`, `T.abs`",
        "yes",
        "TVM",
        "They lower to an absolute value, which the C code generator does not know.",
        "compare the exponent's bits",
        {
            **dict.fromkeys(("is_finite", "is_infinite", "absolute"), Raises(INTERNAL, "Unresolved call Op(tir.fabs)")),
            "instead_the_bits": Returns("[1.0, 0.0, 0.0, 0.0]"),
        },
    ),
    Probe(
        "c_constants",
        "float constants on c have seven digits",
        "yes",
        "TVM",
        "The C code generator prints them with six digits after the point. float32 wants nine digits in all, float64 "
        "seventeen; CUDA's prints hexadecimal float32.",
        "give it as a parameter; powers of two and what seven digits hold are exact",
        {
            "float64_constant": Returns("3.4641020674186507e-07"),
            "float32_constant": Returns("2.384185791015625e-07"),
            "of_seven_digits": Returns("0.0"),
            "instead_a_parameter": Returns("0.0"),
        },
    ),
    Probe(
        "c_strides",
        "c takes no symbolic stride",
        "yes",
        "TileLang",
        "The generated `call` leaves out what is symbolic in strides alone, so its own kernel call lacks an argument.",
        "a flat tensor, and the stride as a number",
        {
            "as_it_stands": Raises("RuntimeError", "return kernel_kernel(x, y, N);"),
            "a_strided_view_for_a_dense_tensor": Raises("ValueError", "Static stride mismatch for parameter x"),
            "instead_the_stride_as_a_number": Returns(),
        },
    ),
    Probe(
        "hip_target",
        "the HIP target fails",
        "yes",
        "the installation",
        "The wheel is built without ROCm.",
        "ask for the code generator first; use it where a ROCm build has it",
        {
            "lower_for_it": Raises("ValueError", "Cannot find global function target.build.tilelang_hip_without_compile"),
            "instead_ask_first": Returns("False"),
        },
    ),
    Probe(
        "metal_target",
        "Metal needs a Mac",
        "no",
        "none",
        "To run, it does. The source comes on any machine.",
        'lower with `tvm.target.Target("metal")`',
        {"lower_for_it": Returns()},
    ),
    Probe(
        "wgmma_24_columns",
        "a WGMMA product with N = 8 modulo 16 is silently wrong",
        "in part",
        "TileLang",
        "It lowers without a word, to instructions of 8 columns. That their result is wrong is upstream's finding on a "
        "later version; here it is not measured.",
        "pad N to a multiple of 16",
        {
            "is_it_refused": Returns("['64, 8, 16']"),
            "instead_a_multiple_of_16": Returns("['64, 32, 16']"),
        },
    ),
    Probe(
        "reduce_without_clear",
        "`T.reduce_sum(..., clear=False)` in shared memory forgets what was there, unless a print stands beside it",
        "no",
        "none",
        "Upstream's fix is in 0.1.8: the old value is read before the new sum is added.",
        "nothing on 0.1.8",
        {"is_the_old_value_read": Returns()},
    ),
    Probe(
        "shared_merge",
        "merged shared memory overlaps a buffer that a loop still reads",
        "no",
        "none",
        "Upstream's fault came after 0.1.8: here the two buffers stay apart, even with aggressive merging.",
        "nothing on 0.1.8; look again before another version",
        {"are_the_two_buffers_apart": Returns("[False, True]")},
    ),
)
