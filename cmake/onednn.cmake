# The name under which oneDNN is loaded (onednn_soname), where its header lies (onednn_include) and, for programs that run
# from the build tree, the library itself (their rpath).
get_target_property(onednn_include DNNL::dnnl INTERFACE_INCLUDE_DIRECTORIES)
get_target_property(configurations DNNL::dnnl IMPORTED_CONFIGURATIONS)
list(GET configurations 0 configuration)
get_target_property(onednn_soname DNNL::dnnl IMPORTED_SONAME_${configuration})
get_target_property(onednn_file DNNL::dnnl IMPORTED_LOCATION_${configuration})
if(NOT onednn_soname)
  message(FATAL_ERROR "${onednn_file} has no soname: oneDNN must be a shared library, for it is loaded at run time")
endif()
get_filename_component(onednn_directory ${onednn_file} DIRECTORY)
list(APPEND CMAKE_BUILD_RPATH ${onednn_directory})
