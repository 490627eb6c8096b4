# Writes TO: the source FROM with the sign of one gradient of SwiGLU turned, as a mistake for the check of a
# GPU to find. The line stands there exactly once; when it changes, adapt it here.
set(line "up[i] = d[i] * silu;")
file(READ "${FROM}" text)
string(REPLACE "${line}" "up[i] = -d[i] * silu;" planted "${text}")
string(LENGTH "${text}" length)
string(LENGTH "${planted}" planted_length)
math(EXPR longer "${planted_length} - ${length}")
if(NOT longer EQUAL 1)
  message(FATAL_ERROR "plant_sign.cmake: '${line}' stands in ${FROM} ${longer} times, not once; "
                      "choose another line to turn the sign of")
endif()
get_filename_component(folder "${TO}" DIRECTORY)
file(MAKE_DIRECTORY "${folder}")
file(WRITE "${TO}" "${planted}")
