"""The engines that build versions: processes of this machine, or Beam."""
