"""Programs as text: what g++ compiles, what nvcc compiles into cubins, and plain C++ that launches what is in them."""

import re
from collections.abc import Sequence
from pathlib import Path

_OF_GEMM = r"tl::(gemm_|wait_wgmma)"
"""What a kernel calls of TileLang's gemm.h, and of CUTLASS behind it."""

_OF_C = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n"

HEADER = Path(__file__).with_name("host.h")


def device_source(kernels: str) -> str:
    """The kernels without the headers that they do not need: half of the time of nvcc is reading them."""
    if re.search(_OF_GEMM, kernels):
        return kernels
    return kernels.replace("#include <tl_templates/cuda/gemm.h>", "#include <tl_templates/cuda/intrin.h>")


def cpu_source(kernels: str) -> str:
    """The kernels with C's headers alone, where none has float16: TileLang's own define it, and g++ reads them for 0.6 s."""
    if re.search(r"\bhalf\d*\b", kernels):
        return kernels
    return _OF_C + re.sub(r"^#include <tl_templates/cpp/.*>\n", "", kernels, flags=re.MULTILINE)


def host_source(parts: Sequence[tuple[str, str]]) -> str:
    """One library of (kernels, TileLang's host code) of every cubin: functions `load`, `init` and `call`.

    Functions stand for kernels, launches do without <<< >>>, and `call` calls that of each part: all take the same.
    It takes the arguments one after another in memory: ctypes needs a tenth of a microsecond for each given by itself.
    """
    table, spaces = [], []
    for i, (kernels, host) in enumerate(parts):
        declared = re.findall(r'^extern "C" (__global__ void (\w+)\(.*\));$', kernels, flags=re.MULTILINE)
        stubs = "".join(f"{declaration} {{}}\n" for declaration, _ in declared)
        launches = re.sub(r"(\w+)<<<(.*), stream>>>\((.*)\);", r"launch_plainly(\1, \2, stream, \3);", host)
        inner = launches.replace('extern "C"', "static")
        spaces.append(f"namespace part_{i} {{\n{stubs}{inner}}}\n")
        table += [f'{{(void*)part_{i}::{name}, "{name}", {i}, nullptr}}' for _, name in declared]
    (parameters,) = {match for _, host in parts for match in re.findall(r'extern "C" int call\((.*)\) {', host)}
    fields = re.sub(r"=\w+", "", parameters).split(", ")
    names = ", ".join("given->" + re.split(r"\W+", field)[-1] for field in fields)
    return f"""{HEADER.read_text(encoding="utf-8")}
{"".join(spaces)}
Kernel kernels[] = {{{", ".join(table)}}};
const int kernels_count = {len(table)};
static const char *said = "";

extern "C" const char *get_last_error() {{ return said; }}

extern "C" int load(const char *prefix) {{
  CUresult result = load_kernels(prefix);
  if (result != CUDA_SUCCESS)
    said = cudaGetErrorString(result);
  return result == CUDA_SUCCESS ? 0 : -1;
}}

extern "C" int init() {{
{_each(len(parts), "init", "")}  return 0;
}}

struct __attribute__((packed)) Arguments {{
  {"; ".join(fields)};
}};

extern "C" int call(const Arguments *given) {{
{_each(len(parts), "call", names)}  return 0;
}}
"""


def _each(parts: int, function: str, arguments: str) -> str:
    return "  if (!has_context()) { said = cudaGetErrorString(cudaGetLastError()); return -1; }\n" + "".join(
        f"  if (part_{i}::{function}({arguments}) != 0) {{ said = part_{i}::get_last_error(); return -1; }}\n"
        for i in range(parts)
    )
