# The libraries, and what others build against: a pkg-config module and a CMake package for each.

# Add lib<name> of the sources ARGN, static and shared, and the names that other builds use, also those that have this folder as one
# of their own.
function(ca_add_library name)
  add_library(${name}_static STATIC ${ARGN})
  add_library(${name}_shared SHARED ${ARGN})
  add_library(${name}::static ALIAS ${name}_static)
  add_library(${name}::${name} ALIAS ${name}_shared)
  set_target_properties(${name}_static PROPERTIES OUTPUT_NAME ${name} EXPORT_NAME static)
  set_target_properties(${name}_shared PROPERTIES OUTPUT_NAME ${name} EXPORT_NAME ${name} VERSION ${PROJECT_VERSION} SOVERSION 0)
  # Symbols have versions; those that are not public, or that the shared library has from archives, stay its own.
  set(map ${PROJECT_SOURCE_DIR}/cmake/${name}.map)
  target_link_options(${name}_shared PRIVATE LINKER:--exclude-libs,ALL LINKER:--version-script=${map})
  set_target_properties(${name}_shared PROPERTIES LINK_DEPENDS ${map})
  foreach(library ${name}_static ${name}_shared)
    target_include_directories(${library} PUBLIC
      $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  endforeach()
endfunction()

if(CATTN_INSTALL)
  include(GNUInstallDirs)
  include(CMakePackageConfigHelpers)
  # Relative, so that `cmake --install --prefix` and moving the tree keep it right.
  file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
endif()

# Install targets, as the pkg-config module `name` and as <name>-targets.cmake of a CMake package.
function(ca_install_module name package)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  install(TARGETS ${ARGN} EXPORT ${name})
  install(EXPORT ${name} NAMESPACE ${package}:: FILE ${name}-targets.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/${package})
endfunction()

# Install <name>_static and <name>_shared, with their package and the headers ARGN of include/.
function(ca_install_library name)
  if(NOT CATTN_INSTALL)
    return()
  endif()
  set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/${name})
  ca_install_module(${name} ${name} ${name}_static ${name}_shared)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/${name}-config.cmake.in ${name}-config.cmake
                                INSTALL_DESTINATION ${folder})
  write_basic_package_version_file(${name}-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/${name}-config-version.cmake
          DESTINATION ${folder})
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/include/)
  install(FILES ${ARGN} TYPE INCLUDE)
endfunction()
