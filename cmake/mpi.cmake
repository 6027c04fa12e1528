# The MPI plugin, once for each MPI that pkg-config knows. The library and the command do not link it: the command loads it when a launcher
# has started several ranks (programs/command/ranks.c). exchange_NAME measures it beside bare MPI (tools/prove exchange).
foreach(mpi openmpi:ompi-c mpich:mpich)
  string(REPLACE ":" ";" mpi ${mpi})
  list(POP_FRONT mpi name package)
  pkg_check_modules(${name} QUIET IMPORTED_TARGET ${package})
  if(NOT ${name}_FOUND)
    continue()
  endif()
  list(APPEND plimsoll_plugins plimsoll_${name})
  add_library(plimsoll_${name} MODULE plugins/mpi_plugin.c)
  target_include_directories(plimsoll_${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(plimsoll_${name} PRIVATE PkgConfig::${name} plimsoll_flags)
  set_target_properties(plimsoll_${name} PROPERTIES PREFIX "" OUTPUT_NAME plimsoll-${name} C_VISIBILITY_PRESET hidden
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS plimsoll_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/plimsoll)
  add_executable(exchange_${name} EXCLUDE_FROM_ALL bench/exchange.c $<TARGET_OBJECTS:plimsoll_objects>)
  target_include_directories(exchange_${name} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(exchange_${name} PRIVATE PkgConfig::${name} PkgConfig::engines Threads::Threads ${CMAKE_DL_LIBS} m plimsoll_flags)
endforeach()
# For any other MPI: mpicc compiles it (programs/command/ranks.c prints the command).
install(FILES plugins/mpi_plugin.c DESTINATION ${CMAKE_INSTALL_LIBDIR}/plimsoll/mpi)
install(FILES include/plimsoll/peers.h include/plimsoll/status.h DESTINATION ${CMAKE_INSTALL_LIBDIR}/plimsoll/mpi/plimsoll)
