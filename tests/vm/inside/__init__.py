"""What runs inside of the virtual machine, as root, one verb for each part of the test."""
