# Copyright Spack Project Developers. See COPYRIGHT file for details.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)
from spack.package import *


class Plimsoll(CMakePackage):
    """Memory-bounded training of graph neural networks: says before the start whether a job fits, and stays under its memory limit."""

    # The archive of `tools/release`; without a published one: spack install plimsoll@0.2.0 after `spack mirror`, or `spack develop`.
    url = "file:///plimsoll-0.2.0.tar.xz"

    license("Apache-2.0")

    version("0.2.0")

    variant("mpi", default=True, description="the plugin that starts a training as several ranks")
    variant("python", default=True, description="the Python package")

    depends_on("c", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("liburing")
    depends_on("isa-l")
    depends_on("zstd")
    depends_on("jansson")
    depends_on("xxhash")
    depends_on("libyaml")
    depends_on("onednn@2.6: cpu_runtime=omp")
    depends_on("mpi", when="+mpi")
    depends_on("python@3.10:", when="+python", type=("build", "link", "run"))

    requires("target=x86_64_v2:", msg="the kernels are written with x86 intrinsics")

    generator("ninja")
    extends("python", when="+python")

    def cmake_args(self):
        args = [self.define("PLIMSOLL_TESTS", False), self.define_from_variant("PLIMSOLL_PYTHON", "python")]
        if self.spec.satisfies("+python"):
            args.append(self.define("PLIMSOLL_PYTHON_DIR", python_platlib.replace(self.prefix + "/", "")))
        return args

    @run_after("install", when="+mpi")
    def compile_plugin(self):
        # CMake knows Open MPI and MPICH by pkg-config; the compiler wrapper of any MPI makes the plugin of one file.
        plugin = join_path(self.prefix.lib, "plimsoll")
        source = join_path(plugin, "mpi")
        Executable(self.spec["mpi"].mpicc)("-shared", "-fPIC", "-O2", "-I", source, "-o", join_path(plugin, "plimsoll-mpi.so"),
                                           join_path(source, "mpi_plugin.c"))
