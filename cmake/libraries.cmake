# The libraries that the engine is linked with, as PkgConfig::engines, and where oneDNN lies (cmake/onednn.cmake has more). A build ends
# with the names of all that is missing, and where it comes from.
set(modules liburing libisal libzstd jansson libxxhash yaml-0.1)
set(missing)
find_package(PkgConfig)
if(PkgConfig_FOUND)
  foreach(module ${modules})
    pkg_check_modules(engine_${module} QUIET ${module})
    if(NOT engine_${module}_FOUND)
      list(APPEND missing ${module})
    endif()
  endforeach()
else()
  set(missing pkg-config ${modules})
endif()
find_path(onednn_include dnnl.h)
find_library(onednn_file dnnl)
if(NOT onednn_include OR NOT onednn_file)
  list(APPEND missing oneDNN)
endif()
if(PLIMSOLL_PYTHON AND NOT PLIMSOLL_PYTHON STREQUAL "AUTO")
  find_package(Python3 3.10 COMPONENTS Interpreter Development.Module)
  if(NOT Python3_Development.Module_FOUND)
    list(APPEND missing "headers of Python")
  endif()
endif()
if(missing)
  list(JOIN missing ", " missing)
  message(FATAL_ERROR "Missing: ${missing}. One of these has them:
    Debian, as root    tools/bootstrap --minimal, and python3-dev for Debian's own Python
    conda              conda install -c conda-forge c-compiler pkg-config liburing isa-l zstd jansson xxhash yaml onednn
                       export CMAKE_PREFIX_PATH=$CONDA_PREFIX
    Spack              packaging/spack/package.py builds Plimsoll and all that it needs
Nothing is compiled with the wheel (tools/wheel), the Debian packages (tools/release) or Apptainer (packaging/plimsoll.def).
packaging/README.md has the commands.")
endif()
pkg_check_modules(engines REQUIRED IMPORTED_TARGET ${modules})
