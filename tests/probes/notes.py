"""Probes of the failures that the source notes reported. What is recorded is tilelang 0.1.8 with apache-tvm-ffi 0.1.9."""

from .outcomes import Probe, Raises, Returns

INTERNAL = "tvm.error.InternalError"

NOTES = (
    Probe(
        "te_slicing",
        "a slice of a tensor in `te.compute` fails",
        "yes",
        "the program",
        "`te.compute` describes one element; it wants every index of a tensor and knows no slices.",
        "index each element: `A[i, 2 + j]`",
        {
            "a_slice_in_compute": Raises("ValueError", "Need to provide 2 index in tensor but 3 was provided"),
            "a_row_of_a_tensor": Raises("ValueError", "Need to provide 2 index in tensor but 1 was provided"),
            "instead_index_each_element": Returns(),
        },
    ),
    Probe(
        "te_nested_reduction",
        "a reduction inside an expression of `te.compute` fails",
        "yes",
        "the program",
        "A reduction must be the whole body of its `te.compute`. One inside another is TVM's lapse: accepted at "
        "first, it fails only in code generation.",
        "a `te.compute` for each stage",
        {
            "in_an_expression": Raises(INTERNAL, "Reductions are only allowed at the top level of compute."),
            "in_a_reduction_is_accepted": Returns(),
            "in_a_reduction_compiled": Raises(INTERNAL, "Do not have a default for tir.Reduce"),
            "instead_two_stages": Returns(),
        },
    ),
    Probe(
        "power_operator",
        "`**` fails on a tensor",
        "yes",
        "TVM",
        "No expression of TVM has the operator, neither in TE nor in a kernel; the example in `T.macro`'s own "
        "docstring uses it.",
        "a product, or `T.pow`",
        {
            "on_a_te_tensor": Raises("TypeError", "unsupported operand type(s) for ** or pow(): 'Tensor' and 'int'"),
            "on_a_te_element": Raises("TypeError", "unsupported operand type(s) for ** or pow(): 'TensorSlice' and 'int'"),
            "in_a_kernel": Raises("TypeError", "unsupported operand type(s) for ** or pow(): 'BufferLoad' and 'int'"),
            "in_a_macro_as_its_docstring_has_it": Raises(
                "TypeError", "unsupported operand type(s) for ** or pow(): 'Var' and 'int'"
            ),
            "instead_a_product_or_pow": Returns("(True, True)"),
        },
    ),
    Probe(
        "te_create_schedule",
        "`te.create_schedule` is missing",
        "yes",
        "TVM",
        "TVM removed TE schedules. `te.create_prim_func` with a TIR schedule replaces them; TileLang wants five of TVM's "
        "passes run over the result first.",
        "`te.create_prim_func`, `tvm.tir.Schedule`, then the passes in the probe; both on c and for CUDA",
        {
            "the_call": Raises("AttributeError", "module 'tvm.te' has no attribute 'create_schedule'"),
            "create_prim_func_straight_to_tilelang": Raises(INTERNAL, "(!op->init.defined()) is false"),
            "a_dynamic_stage_that_is_no_parameter": Raises(
                INTERNAL, "Can only handle constant size stack allocation for now"
            ),
            "instead_on_c": Returns(),
            "instead_for_cuda": Returns("(True, True)"),
        },
    ),
    Probe(
        "not_callable",
        'eager JIT fails with "... is not a callable object"',
        "yes",
        "the program",
        "It is Python's `inspect.signature`, which `tilelang.jit` and `T.prim_func` call on what they decorate, given a TIR "
        "statement or a finished PrimFunc: `@tilelang.jit` above `@T.prim_func` is enough.",
        "`tilelang.compile` for a PrimFunc; `@tilelang.jit` on a Python function",
        {
            "signature_of_a_statement": Raises("TypeError", "T.evaluate(0) is not a callable object"),
            "jit_of_a_statement": Raises("TypeError", "T.evaluate(0) is not a callable object"),
            "jit_on_top_of_prim_func": Raises("TypeError", "* T.float32(2.0) is not a callable object"),
            "instead_compile": Returns(),
            "instead_jit_of_a_function_that_returns_it": Returns(),
        },
    ),
    Probe(
        "multi_index_store",
        "`output[b, s, i] = local[i]` is a compiler bug",
        "no",
        "none",
        "It compiles and gives the right values, lazily and eagerly, in three and four dimensions, and lowers for CUDA.",
        "the store as it stands",
        dict.fromkeys(("lazily_3d", "lazily_4d", "eagerly_3d", "eagerly_4d", "for_cuda"), Returns()),
    ),
    Probe(
        "shared_detour",
        "stores at several indices need a detour through shared memory",
        "no",
        "none",
        "The detour works, and on CUDA costs shared memory and a barrier for nothing.",
        "store straight from the loop",
        {
            "the_detour_on_c": Returns(),
            "what_it_costs_on_cuda": Returns("(True, True)"),
            "instead_on_cuda": Returns("(True, True)"),
        },
    ),
    Probe(
        "copy_local",
        "`T.copy` of a local buffer fails",
        "in part",
        "TileLang",
        "On c it asks for a current target, and inside one it writes `float4`, which C++ does not know. On CUDA it "
        "compiles, but a local buffer belongs to one thread: every thread of the block writes the whole of it.",
        'on c a loop, or `with Target("c")` and `tir.disable_vectorize`; on CUDA a fragment',
        {
            "on_c": Raises(INTERNAL, "Target context required."),
            "on_c_inside_the_target": Raises("RuntimeError", "*(float4*)(y + (block_var_0 * 4)) = *(float4*)(local + 0);"),
            "instead_on_c_without_vectorising": Returns(),
            "instead_on_c_a_loop": Returns(),
            "on_cuda_every_thread_writes_all": Returns("(True, True)"),
            "instead_on_cuda_a_fragment": Returns("(True, True)"),
        },
    ),
    Probe(
        "missing_nvcc",
        "compiling fails where nvcc is missing",
        "yes",
        "the installation",
        "A kernel for CUDA is compiled by nvcc. Lowering it does not need nvcc, and c needs a C++ compiler only.",
        "lower for CUDA and read the source; run on c",
        {
            "with_the_default_backend": Raises("RuntimeError", "No such file or directory: 'nowhere/bin/nvcc'"),
            "with_the_cython_backend": Raises("RuntimeError", "No such file or directory: 'nowhere/bin/nvcc'"),
            "instead_lower_only": Returns(),
            "instead_on_c": Returns(),
        },
        {"CUDA_HOME": "nowhere"},
    ),
    Probe(
        "before_declaration",
        'a TIR script fails with "Load/Store of buffer ... occurred before its declaration"',
        "yes",
        "the program",
        "The kernel uses a buffer that is neither its parameter nor allocated in it. A local buffer of another `T.Kernel` "
        "has a message of its own.",
        "make it a parameter: a workspace between two `T.Kernel` of one function",
        {
            "a_buffer_of_no_function": Raises(INTERNAL, "occurred before its declaration."),
            "a_local_buffer_of_another_kernel": Raises(
                "RuntimeError", "Immutable variable `local` is used outside its defining region!"
            ),
            "instead_a_parameter": Returns(),
        },
    ),
    Probe(
        "tir_script",
        "the kernel as a TIR script does not compile",
        "in part",
        "TileLang",
        "A size declared as `T.int32()` inside has no name, and the C source has a gap where its name should be. With "
        "shared memory, the pass that places barriers wants all three thread dimensions.",
        '`N = T.dynamic("N")` in front of the function; threadIdx.y and .z bound to 1; buffers inside a `T.block`',
        {
            "a_size_without_a_name": Raises("RuntimeError", "for (int32_t row = 0; row < ; ++row)"),
            "instead_a_named_size_on_c": Returns(),
            "shared_memory_with_one_thread_dimension": Raises("IndexError", "indexing -1 on an array of size 2"),
            "instead_all_three_thread_dimensions": Returns("(True, True, True)"),
            "instead_for_cuda": Returns("(True, True)"),
        },
    ),
    Probe(
        "llvm_target",
        "the LLVM target fails",
        "yes",
        "the installation",
        "The wheel is built without LLVM.",
        'the `c` target: `target="c", execution_backend="cython"`',
        {
            "is_it_in_the_wheel": Returns("False"),
            "compile_for_it": Raises("ValueError", "Cannot find global function target.build.llvm"),
            "instead_c": Returns(),
        },
    ),
)
